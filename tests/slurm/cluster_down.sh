#!/usr/bin/env bash
# Stops the daemons that cluster_up.sh started (by their process ids), removes its links and its folder.
set -euo pipefail
folder=${1:-/var/lib/subjectdp-slurm}
[ -e "$folder/.made-by-cluster_up" ] || exit 0

if [ -s "$folder/slurmctld.pid" ] && [ -s "$folder/slurmd.pid" ]; then
  timeout 5 scancel --user=root 2>/dev/null || true
fi
for name in slurmd slurmctld munged; do
  file=$folder/$name.pid
  [ -s "$file" ] || continue
  pid=$(cat "$file")
  # A pid file may outlive its process, and the number may belong to another by now.
  [ "$(cat "/proc/$pid/comm" 2>/dev/null || true)" = "$name" ] || continue
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null && sleep 0.1 || break; done
done
for name in slurm gres cgroup; do
  link=/etc/slurm/$name.conf
  if [ -L "$link" ] && [ "$(readlink "$link")" = "$folder/$name.conf" ]; then rm "$link"; fi
done
rm -rf "$folder"

#!/usr/bin/env bash
# Brings up a real Slurm of one node on this machine, for tests: munge, slurmctld, slurmd, two fake GPUs, no accounting
# database, no cgroups. Needs root. Everything lives in one folder; under /etc/slurm there are only links to it, since
# Snakemake's job steps look for the configuration there and nowhere else.
#
#   tests/slurm/cluster_up.sh [FOLDER]     default folder: /var/lib/subjectdp-slurm
#   tests/slurm/cluster_down.sh [FOLDER]   stops what this script started and removes links and folder
#
# INSTALL=1  installs slurm-wlm and munge with apt-get where they are missing
# GPUS, CPUS, MEMORY_MB  of the node (default: 2, 4, 90 % of the memory); more CPUs than there are is fine
# Exit status 3: this machine cannot do it, the last line says why.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-/var/lib/subjectdp-slurm}
gpus=${GPUS:-2}
cpus=${CPUS:-4}
memory=${MEMORY_MB:-$(awk '/^MemTotal/ {printf "%d", $2 / 1024 * 0.9}' /proc/meminfo)}
host=$(hostname -s)

cannot() {
  echo "no Slurm here: $*"
  exit 3
}

packages_at_hand() { command -v slurmctld slurmd sbatch srun munged >/dev/null; }

[ "$(id -u)" = 0 ] || cannot "root is needed to run the daemons"
if ! packages_at_hand && [ "${INSTALL:-0}" = 1 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  timeout 120 apt-get update -qq >/dev/null || cannot "apt-get update failed"
  timeout 240 apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null ||
    cannot "apt-get install slurm-wlm munge failed"
fi
packages_at_hand || cannot "the packages slurm-wlm and munge are not installed (INSTALL=1 installs them on Debian)"
for name in slurm gres cgroup; do
  link=/etc/slurm/$name.conf
  if [ -L "$link" ] && [ "$(readlink "$link")" = "$folder/$name.conf" ]; then continue; fi
  if [ -e "$link" ] || [ -L "$link" ]; then cannot "$link is there already: this machine has a Slurm of its own"; fi
done
"$here/cluster_down.sh" "$folder"
trap '[ $? = 0 ] || "$here/cluster_down.sh" "$folder"' EXIT

# slurmd starts jobs in /, and other users may have to reach the socket.
install -d -m 0755 "$folder" "$folder"/{ctld,spool,gpu,log,munge}
echo subjectdp >"$folder/.made-by-cluster_up"
getent hosts "$host" >/dev/null || echo "127.0.0.1 $host" >>/etc/hosts

(umask 077 && dd if=/dev/urandom of="$folder/munge/key" bs=1024 count=1 status=none)
socket=$folder/munge/socket
munged --force --key-file="$folder/munge/key" --socket="$socket" --pid-file="$folder/munged.pid" \
  --log-file="$folder/log/munged.log" --seed-file="$folder/munge/seed" >/dev/null 2>&1
for _ in $(seq 50); do munge -n -S "$socket" 2>/dev/null | unmunge -S "$socket" >/dev/null 2>&1 && break || sleep 0.1; done

# slurmd takes device files only: these are other names of /dev/null. Without the right to make them GPUs are counted
# and given out all the same, but no job is told which one it has.
devices="Count=$gpus"
for ((index = 0; index < gpus; index++)); do mknod "$folder/gpu/nvidia$index" c 1 3 2>/dev/null || true; done
if [ -c "$folder/gpu/nvidia$((gpus - 1))" ]; then devices="File=$folder/gpu/nvidia[0-$((gpus - 1))]"; fi

cat >"$folder/slurm.conf" <<CONF
ClusterName=subjectdp
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$socket
StateSaveLocation=$folder/ctld
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
MinJobAge=600
KillWait=10
OverTimeLimit=0
InactiveLimit=0
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=$memory Gres=gpu:fake:$gpus State=UNKNOWN
PartitionName=cpu Nodes=$host Default=YES MaxTime=02:00:00 DefMemPerCPU=200 State=UP
PartitionName=gpu Nodes=$host Default=NO MaxTime=1-00:00:00 DefMemPerCPU=200 State=UP
CONF
cat >"$folder/gres.conf" <<CONF
AutoDetect=off
NodeName=$host Name=gpu Type=fake $devices
CONF
cat >"$folder/cgroup.conf" <<CONF
CgroupAutomount=no
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=no
CONF
install -d /etc/slurm
for name in slurm gres cgroup; do ln -sfn "$folder/$name.conf" "/etc/slurm/$name.conf"; done

slurmctld >/dev/null 2>&1
slurmd >/dev/null 2>&1
state=""
for _ in $(seq 100); do
  state=$(timeout 3 sinfo -h -N -o '%T' 2>/dev/null | head -1 || true)
  [ "$state" = idle ] && break
  sleep 0.1
done
if [ "$state" != idle ]; then
  tail -n 5 "$folder"/log/*.log
  cannot "the node is '${state:-unknown}' after 10 s, not idle"
fi
timeout 5 sinfo -N -o '%N %T %c %m %G %P'

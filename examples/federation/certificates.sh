#!/usr/bin/env bash
# Makes what TLS and authentication need: certificates.sh FOLDER SERVER_NAME SILOS
#   ca.crt        goes to every partner
#   server.crt, server.key   stay with the server; ca.key is not needed afterwards
#   silo-N, silo-N.pub       key pair of silo N: each partner should make its own (last command) and send the .pub
set -euo pipefail
folder=$1 name=$2 silos=$3
mkdir -p "$folder" && cd "$folder"
umask 077
subject="subjectAltName=DNS:$name,DNS:localhost,IP:127.0.0.1"
openssl req -x509 -newkey rsa:3072 -nodes -days 365 -subj "/CN=federation CA" -keyout ca.key -out ca.crt
openssl req -newkey rsa:3072 -nodes -subj "/CN=$name" -addext "$subject" -keyout server.key -out server.csr
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 365 -copy_extensions copy -out server.crt
for ((silo = 0; silo < silos; silo++)); do
  rm -f "silo-$silo" "silo-$silo.pub"
  ssh-keygen -q -t ecdsa -b 384 -N "" -f "silo-$silo" -C "silo-$silo"
done

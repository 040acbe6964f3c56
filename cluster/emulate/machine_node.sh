#!/bin/sh
# The first process of a machine: lays the node's own files over the Debian that all share, and
# boots it. What is mounted here ends with the node; what the node writes stays in its folder.
# Arguments: node's name, its folder, the shared root, name for and path of an emulator (or nothing).
set -eu
node=$1 folder=$2 shared=$3 format=$4 qemu=$5

[ -z "$qemu" ] || sh "$(dirname "$0")/binfmt.sh" add "$format" "$qemu"
# The host's systemd, if there is one, has nothing to do with the node.
mount -t tmpfs -o mode=755 run /run

cd "$folder"
mkdir -p upper work root
mount -t overlay -o "lowerdir=$shared,upperdir=upper,workdir=work" overlay root
if [ -d files ]; then # the first boot
    cp -R files/. root
    rm -r files
fi

boot() {
    systemd-nspawn --quiet --boot --directory=root --machine="$node" --hostname="$node" \
        --register=no --keep-unit --network-namespace-path=/proc/self/ns/net \
        --console=read-only --link-journal=no --resolv-conf=off --timezone=off
}
code=133 # by which systemd-nspawn says that the machine reboots
while [ $code = 133 ]; do
    code=0
    boot || code=$?
done
exit $code

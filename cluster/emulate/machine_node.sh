#!/bin/sh
# Supervisor of a machine: overlays the node's files on the shared Debian and boots it. Mounts made
# here end with the node; files that the node writes stay in its folder.
# Arguments: name of the node, its folder, the shared root, binfmt name and path of the emulator (or empty).
set -eu
node=$1 folder=$2 shared=$3 format=$4 qemu=$5

[ -z "$qemu" ] || sh "$(dirname "$0")/binfmt.sh" add "$format" "$qemu"
# Hides the host's systemd, if there is one, from the node.
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
code=133 # systemd-nspawn's exit code for a reboot
while [ $code = 133 ]; do
    code=0
    boot || code=$?
done
exit $code

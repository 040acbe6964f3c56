#!/bin/sh
# The first process of a light node, in namespaces of its own: gives the node its own names,
# shared memory and settings, then becomes its sshd. What is mounted here ends with the node.
# Arguments: node's name, its folder, its environment (or nothing).
set -eu
node=$1 folder=$2 environment=$3

hostname "$node"
mount --make-rprivate /
mount -t proc proc /proc
# The node's own /sys, with the cgroups: programs look there for their memory limit.
mkdir -p "$folder/cgroup"
mount --rbind /sys/fs/cgroup "$folder/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$folder/cgroup" /sys/fs/cgroup
umount -l "$folder/cgroup"
mount -t tmpfs -o mode=1777 shm /dev/shm

# Over /etc, and over the environment's etc, the node's own files; what else a node writes there
# stays in its memory.
mount -t tmpfs -o mode=755 node "$folder/private"
over() {
    cp -r "$folder/$1" "$folder/private/$1"
    mkdir "$folder/private/$1-work"
    mount -t overlay -o "lowerdir=$2,upperdir=$folder/private/$1,workdir=$folder/private/$1-work" \
        overlay "$2"
}
over etc /etc
[ ! -d "${environment:-/nowhere}/etc" ] || over openmpi "$environment/etc"

# A shell on the node has the node's environment active, not what the host's user has set up.
for file in .bashrc .bash_profile .bash_login .profile; do
    [ ! -f "$HOME/$file" ] || mount --bind "$folder/shell" "$HOME/$file"
done

mount -t tmpfs -o mode=755 run /run
mkdir /run/sshd
mkdir -m 1777 "$TMPDIR"
exec /usr/sbin/sshd -D -e -f "$folder/sshd_config"

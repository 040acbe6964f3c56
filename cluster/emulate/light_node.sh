#!/bin/sh
# Process 1 of a light node, in its own namespaces: sets the node's host name, shared memory and
# settings, then runs sshd. Mounts made here end with the node.
# Arguments: name of the node, its folder, its virtual environment (or empty).
set -eu
node=$1 folder=$2 environment=$3

hostname "$node"
mount --make-rprivate /
mount -t proc proc /proc
# The node's own /sys, with the cgroups: programs read their memory limit there.
mkdir -p "$folder/cgroup"
mount --rbind /sys/fs/cgroup "$folder/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$folder/cgroup" /sys/fs/cgroup
umount -l "$folder/cgroup"
mount -t tmpfs -o mode=1777 shm /dev/shm

# Overlays the node's files on /etc and on the environment's etc. Other files that a node writes
# there stay in memory.
mount -t tmpfs -o mode=755 node "$folder/private"
over() {
    cp -r "$folder/$1" "$folder/private/$1"
    mkdir "$folder/private/$1-work"
    mount -t overlay -o "lowerdir=$2,upperdir=$folder/private/$1,workdir=$folder/private/$1-work" \
        overlay "$2"
}
over etc /etc
[ ! -d "${environment:-/nowhere}/etc" ] || over openmpi "$environment/etc"

# A shell on the node activates the node's environment and ignores the host user's profile.
for file in .bashrc .bash_profile .bash_login .profile; do
    [ ! -f "$HOME/$file" ] || mount --bind "$folder/shell" "$HOME/$file"
done

mount -t tmpfs -o mode=755 run /run
mkdir /run/sshd
mkdir -m 1777 "$TMPDIR"
exec /usr/sbin/sshd -D -e -f "$folder/sshd_config"

#!/bin/sh
# Creates a Debian root like that of a freshly flashed board: systemd, sshd, Python, a sudo user.
# Each machine gets its keys, names and addresses later. Runs in its own namespaces, so that its
# mounts and processes end with it.
# Arguments: suite, architecture, folder, mirror, emulator (or empty).
set -eu
suite=$1 arch=$2 root=$3 mirror=$4 qemu=$5
packages=systemd,systemd-sysv,dbus,openssh-server,python3,sudo,iproute2
packages=$packages,ca-certificates,netbase,procps,iputils-ping

[ -z "$qemu" ] || sh "$(dirname "$0")/binfmt.sh" add edgeddl-root "$qemu"
# Syncing the disk after each package would double the time.
mkdir -p "$root/etc/dpkg/dpkg.cfg.d"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
debootstrap --arch="$arch" --variant=minbase --include=$packages "$suite" "$root" "$mirror"

echo "I: Configuring the board's user"
chroot "$root" useradd --create-home --shell /bin/bash pi
chroot "$root" install --directory --owner=pi --group=pi --mode=700 /home/pi/.ssh
install --directory --mode=700 "$root/root/.ssh"
echo "pi ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/010_pi-nopasswd"

# Files that must be unique to each machine, and files that only take space.
rm -f "$root/etc/dpkg/dpkg.cfg.d/unsafe-io" "$root"/etc/ssh/ssh_host_* "$root"/var/cache/apt/archives/*.deb
: >"$root/etc/machine-id"

#!/bin/sh
# Registers qemu with the kernel as interpreter of 64-bit ARM programs, or unregisters it.
#
#   binfmt.sh add NAME QEMU
#   binfmt.sh remove NAME
#
# Runs in its own mount namespace, so that the host's mounts do not change. Since Linux 6.7 a
# registration belongs to its mount and ends with the namespace.
set -eu
action=$1 name=$2 qemu=${3:-}
formats=/proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

[ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats
case $action in
    add)
        # F: the kernel opens the emulator now, so it is not needed inside another root
        [ -e "$formats/$name" ] ||
            printf '%s\n' ":$name:M::$magic:$mask:$qemu:F" >$formats/register
        ;;
    remove) [ ! -e "$formats/$name" ] || echo -1 >"$formats/$name" ;;
esac

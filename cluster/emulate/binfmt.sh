#!/bin/sh
# Has the kernel run programs for 64-bit ARM by qemu, or takes that back.
#
#   binfmt.sh add NAME QEMU
#   binfmt.sh remove NAME
#
# Runs in a mount namespace of its own, so that the host's mounts stay as they are. Where the kernel
# ties what is registered to that mount (Linux 6.7 and later), it ends with the namespace.
set -eu
action=$1 name=$2 qemu=${3:-}
formats=/proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

[ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats
case $action in
    add)
        # F: the emulator is opened now, so it need not be there in another root
        [ -e "$formats/$name" ] ||
            printf '%s\n' ":$name:M::$magic:$mask:$qemu:F" >$formats/register
        ;;
    remove) [ ! -e "$formats/$name" ] || echo -1 >"$formats/$name" ;;
esac

# Starts a job on the head that goes on when the connection ends, one at a time.
# Runs in the work folder. Arguments: columns of the terminal to give it (0: none), the command.
#
#   job/lock     held as long as the job runs, however it ends
#   job/command  what was started; its age is the job's
#   job/log      all that it says
#   job/pid      the process to send signals to
#   job/watcher  the process that ends last
#   job/code     the exit code, when it has ended
set -eu
mkdir -p job runs
exec 9>job/lock
flock -n 9 || exit 75
rm -f job/pid job/code
printf '%s\n' "$2" >job/command
: >job/log
export JOB_COLUMNS="$1" JOB_COMMAND="$2" SHELL=/bin/sh

setsid sh -c '
    echo $$ >job/watcher
    begin="echo \$\$ >job/pid; eval \"exec \$JOB_COMMAND\""
    if [ "$JOB_COLUMNS" -gt 0 ]; then
        # a terminal of its own: a bar is for terminals
        script -qfec "stty cols $JOB_COLUMNS; $begin" /dev/null 9>&-
    else
        sh -c "$begin" 9>&-
    fi >>job/log 2>&1
    echo $? >job/code.new
    mv job/code.new job/code
' </dev/null >/dev/null 2>&1 &
while [ ! -s job/watcher ] || [ ! -s job/pid ] && [ ! -s job/code ]; do sleep 0.1; done

# Starts a job on the head that continues when the connection ends; only one can run at a time.
# Runs in the work folder. Arguments: columns of the job's terminal (0: no terminal), the command.
#
#   job/lock     locked while the job runs
#   job/command  the command line; its modification time is the start of the job
#   job/log      output of the job
#   job/pid      the process that receives signals
#   job/watcher  the process that ends last
#   job/code     the exit code, once the job has ended
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
        # in a pseudo-terminal: the progress bar needs one
        script -qfec "stty cols $JOB_COLUMNS; $begin" /dev/null 9>&-
    else
        sh -c "$begin" 9>&-
    fi >>job/log 2>&1
    echo $? >job/code.new
    mv job/code.new job/code
' </dev/null >/dev/null 2>&1 &
while [ ! -s job/watcher ] || [ ! -s job/pid ] && [ ! -s job/code ]; do sleep 0.1; done

"""An emulated cluster of boards on one Linux machine.

N nodes are connected by a bridge. Each has its own namespaces, network link, CPU quota, memory
limit and sshd.

    spec.py           the requested cluster: nodes, addresses, limits (pure)
    network.py        bridge, links and their rates
    cgroups.py        CPU and memory limits
    ssh.py            keys, known hosts, configuration of sshd and ssh
    openmpi.py        Open MPI's defaults, with which a plain mpirun spans the cluster
    init_process.py   starts, joins and finds a node's process 1
    light_node.py     a node that shares the host's file system (light_node.sh)
    machine_node.py   a node that boots its own Debian with systemd (machine_node.sh)
    rootfs.py         the Debian root file system that machines share (debian_root.sh, binfmt.sh)
    host_settings.py  the host's mirrors, proxies and certificates, for machines
    nat.py            address translation, so that machines can install packages
    sysctl.py         kernel settings of the host, restored at the end
    host_command.py   runs the host's tools
    inventory.py      the inventory for Ansible and other tools
    cluster.py        up, down and faults: combines the modules above
    state.py          the cluster's state folder; folder_lock.py serialises changes
    requirements.py   what the host must provide; debian_packages.py installs it
"""

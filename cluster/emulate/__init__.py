"""A cluster of boards on one Linux machine: N nodes on a bridge, each with its own namespaces,
network link, share of the processor, memory limit and sshd.

    spec.py           what is asked for: nodes, addresses, shares (pure)
    network.py        bridge, links and their rates
    cgroups.py        shares of processor and memory
    ssh.py            keys, known hosts, configuration of sshd and ssh
    openmpi.py        Open MPI's files that make a plain mpirun span the cluster
    first_process.py  how a node's first process is started, joined and found
    light.py          a node as namespaces over the host's file system (light_node.sh)
    machine.py        a node as a whole Debian with systemd (machine_node.sh)
    roots.py          the Debian that machines share (debian_root.sh, binfmt.sh)
    host_settings.py  mirrors, proxies, certificates of this host, for machines
    way_out.py        forwarding, so that machines can install packages
    host_switch.py    settings of this host's kernel, put back in the end
    inventory.py      the file that Ansible and others read
    cluster.py        up, down, faults: joins the above
    state.py          the cluster's folder; folder_lock.py makes changes one at a time
    requirements.py   what the host must have
"""

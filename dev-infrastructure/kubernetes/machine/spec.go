// Package machine runs programs as if they were on a machine of their own: in new mount, PID, UTS, IPC, network and cgroup
// namespaces, with a root file system and an address of their own. A machine can contain further machines, which it connects with a
// bridge. The network of the outermost machine has no interface to the host, so nothing inside reaches the outside.
//
// A machine has two processes beside its programs. The launcher runs in the namespaces of its parent. It creates the machine's cgroups
// and network link, waits, and removes the cgroups. The init process is PID 1 of the machine. It mounts the file systems, starts the
// programs and reaps processes. When the init process terminates, the kernel kills every process of the machine and removes its mounts
// and interfaces. It terminates with its launcher, and the launcher terminates with the process that started it.
//
// The package must never change a setting of the host: cgroups are created only below those of the calling process, and the files of
// /proc/sys other than those of the machine's own network are read-only inside.
package machine

// Spec is one machine.
type Spec struct {
	// Name is the host name and the name of the nested machine's cgroups.
	Name string `json:"name"`
	// Bridge connects the machines inside this one. Nil for a machine without any.
	Bridge *Bridge `json:"bridge,omitempty"`
	// Link connects the machine to the bridge of the machine that contains it. Nil for an outermost machine.
	Link *Link `json:"link,omitempty"`
	// Routes are added to the routing table.
	Routes []Route `json:"routes,omitempty"`
	// Root is the root file system. Nil keeps that of the parent.
	Root *Root `json:"root,omitempty"`
	// Programs are started in this order. When one of them terminates, the machine terminates.
	Programs []Program `json:"programs,omitempty"`
}

// Bridge is a network bridge with an address of the machine on it.
type Bridge struct {
	Name string `json:"name"`
	// Address has a prefix length, for example 10.77.0.1/24.
	Address string `json:"address"`
	// Further are more addresses of the machine, with prefix lengths.
	Further []string `json:"further,omitempty"`
}

// Link is the interface eth0 of a machine, whose other end is a port of a bridge.
type Link struct {
	Bridge string `json:"bridge"`
	// Address has a prefix length, and Gateway, the next hop of the default route, has none.
	Address string `json:"address"`
	Gateway string `json:"gateway"`
}

// Route is a route to a network through a next hop.
type Route struct {
	To  string `json:"to"`
	Via string `json:"via"`
}

// Root is a root file system. It is a tmpfs with these mounts, the programs' shared folders of the host (/usr, /bin, /sbin, /lib*)
// read-only, and /proc, /sys, /dev, /run and /tmp of its own.
type Root struct {
	Mounts []Mount `json:"mounts,omitempty"`
}

// Mount makes a file or folder of the parent's file system visible in a machine.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Program is a program of a machine. Its paths are paths in the machine's root file system.
type Program struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args,omitempty"`
	// Env is the whole environment: nothing is inherited.
	Env []string `json:"env,omitempty"`
	// Log is the file to which standard output and standard error are appended.
	Log string `json:"log"`
	// Socket is the path of a Unix socket. The next program is started when the socket accepts connections. Empty for no wait.
	Socket string `json:"socket,omitempty"`
}

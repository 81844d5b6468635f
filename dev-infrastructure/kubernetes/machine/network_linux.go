package machine

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

// linkName is the name of a machine's interface.
const linkName = "eth0"

// portName returns the name of the port of a bridge for a machine. An interface name has at most 15 characters.
func portName(machine string) string {
	const prefix = "to-"
	return prefix + machine[:min(len(machine), 15-len(prefix))]
}

// plug connects the machine of a process to a bridge in the network of the calling process. A port that an earlier machine of this
// name left is removed before.
func plug(name string, link Link, pid int) error {
	bridge, err := netlink.LinkByName(link.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", link.Bridge, err)
	}
	if err := unplug(name); err != nil {
		return err
	}
	hardware, err := hardwareAddress(link.Address)
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex = portName(name), bridge.Attrs().Index
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: linkName, PeerHardwareAddr: hardware, PeerNamespace: netlink.NsPid(pid)}); err != nil {
		return fmt.Errorf("creating the link of %s: %w", name, err)
	}
	port, err := netlink.LinkByName(attributes.Name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(port)
}

// hardwareAddress returns the hardware address of the interface with an address. It follows from the address, because machines keep it in their
// neighbor tables: one that starts again has it again, and a bridge does not take that of another port when a machine is lost.
func hardwareAddress(cidr string) (net.HardwareAddr, error) {
	ip, _, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	ip4 := ip.To4()
	if ip4 == nil {
		return nil, fmt.Errorf("address %s: is not an address of IPv4", cidr)
	}
	return append(net.HardwareAddr{0x02, 0}, ip4...), nil // 02: administered locally
}

// unplug removes the port of a machine. The kernel removes it too, some time after the machine has terminated.
func unplug(name string) error {
	port, err := netlink.LinkByName(portName(name))
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(port)
}

// configureNetwork configures the network of the machine that the calling process is in.
func configureNetwork(spec Spec) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return err
	}
	// A setting of the machine's own network, not of the host's.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	if spec.Bridge != nil {
		hardware, err := hardwareAddress(spec.Bridge.Address)
		if err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.HardwareAddr = spec.Bridge.Name, hardware
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
			return fmt.Errorf("creating bridge %s: %w", spec.Bridge.Name, err)
		}
		for _, cidr := range append([]string{spec.Bridge.Address}, spec.Bridge.Further...) {
			if err := address(spec.Bridge.Name, cidr); err != nil {
				return err
			}
		}
	}
	if spec.Link != nil {
		if err := address(linkName, spec.Link.Address); err != nil {
			return err
		}
		if err := route(Route{To: "0.0.0.0/0", Via: spec.Link.Gateway}); err != nil {
			return err
		}
	}
	for _, r := range spec.Routes {
		if err := route(r); err != nil {
			return err
		}
	}
	return nil
}

// address assigns an address to an interface and enables it.
func address(name, cidr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	parsed, err := netlink.ParseAddr(cidr)
	if err != nil {
		return fmt.Errorf("address %q of %s: %w", cidr, name, err)
	}
	if err := netlink.AddrAdd(link, parsed); err != nil {
		return fmt.Errorf("address %s of %s: %w", cidr, name, err)
	}
	return netlink.LinkSetUp(link)
}

// route adds a route.
func route(r Route) error {
	_, to, err := net.ParseCIDR(r.To)
	if err != nil {
		return fmt.Errorf("route: %w", err)
	}
	via := net.ParseIP(r.Via)
	if via == nil {
		return fmt.Errorf("route to %s: %q is not an IP address", r.To, r.Via)
	}
	if err := netlink.RouteAdd(&netlink.Route{Dst: to, Gw: via}); err != nil {
		return fmt.Errorf("route to %s via %s: %w", r.To, r.Via, err)
	}
	return nil
}

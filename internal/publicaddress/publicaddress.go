// Package publicaddress distinguishes addresses of the public internet from all others, and brings names of hosts to one form, so that lists of
// names can be compared byte by byte. Programs that connect to hosts that customers name check each address with it when they connect, because
// the owner of a name chooses its addresses and can change them at any time.
package publicaddress

import "net/netip"

// Kind returns why an address is not public, for example "loopback", or "" if it is public. An IPv4 address in an IPv6 address
// ("::ffff:10.0.0.1") is the IPv4 address. Other IPv6 addresses that contain IPv4 addresses (NAT64, 6to4, Teredo) are not public,
// whatever they contain: a translator in the network would decide where a connection ends.
func Kind(address netip.Addr) string {
	switch address = address.Unmap(); {
	case !address.IsValid():
		return "invalid"
	case address.Zone() != "":
		return "of an interface"
	case address.IsUnspecified():
		return "unspecified"
	case address.IsLoopback():
		return "loopback"
	case address.IsLinkLocalUnicast():
		return "link-local"
	case address.IsMulticast():
		return "multicast"
	case address.IsPrivate():
		return "private"
	}
	for _, r := range ranges() {
		if r.prefix.Contains(address) {
			return r.kind
		}
	}
	if address.Is6() && !globalUnicast().Contains(address) {
		return "reserved"
	}
	return ""
}

type addressRange struct {
	prefix netip.Prefix
	kind   string
}

// ranges returns the ranges of IANA's registries of special addresses that net/netip does not classify, and Azure's own address.
func ranges() []addressRange {
	p := netip.MustParsePrefix
	return []addressRange{
		{p("0.0.0.0/8"), "reserved"},
		{p("100.64.0.0/10"), "shared"}, // carrier-grade NAT
		// Azure's virtual address for services of the host: DNS, health probes and the agent of virtual machines.
		{p("168.63.129.16/32"), "an address of the platform"},
		{p("192.0.0.0/24"), "reserved"},
		{p("192.0.2.0/24"), "for documentation"},
		{p("192.88.99.0/24"), "translated"},
		{p("198.18.0.0/15"), "for benchmarks"},
		{p("198.51.100.0/24"), "for documentation"},
		{p("203.0.113.0/24"), "for documentation"},
		{p("240.0.0.0/4"), "reserved"},
		{p("64:ff9b::/96"), "translated"},
		{p("64:ff9b:1::/48"), "translated"},
		{p("2001::/32"), "translated"},
		{p("2001::/23"), "reserved"},
		{p("2001:db8::/32"), "for documentation"},
		{p("2002::/16"), "translated"},
		{p("3fff::/20"), "for documentation"},
	}
}

// globalUnicast returns the part of IPv6 that IANA assigns to the internet.
func globalUnicast() netip.Prefix { return netip.MustParsePrefix("2000::/3") }

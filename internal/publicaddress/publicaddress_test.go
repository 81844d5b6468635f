package publicaddress

import (
	"net/netip"
	"testing"
)

func TestKind(t *testing.T) {
	for address, want := range map[string]string{
		"20.50.2.1": "", "8.8.8.8": "", "172.15.255.255": "", "172.32.0.1": "", "100.128.0.1": "", "2603:1030:20e::1": "", "2a00:1450::1": "", "::ffff:8.8.8.8": "",
		"127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"10.1.2.3": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private", "fc00::1": "private", "fd00:ec2::254": "private", "::ffff:10.0.0.1": "private",
		"169.254.169.254": "link-local", "::ffff:169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "of an interface", "2603::1%eth0": "of an interface",
		"168.63.129.16": "an address of the platform",
		"100.64.0.1":    "shared", "100.127.255.255": "shared",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast", "ff02::1": "multicast", "ff0e::1": "multicast",
		"0.0.0.0": "unspecified", "::": "unspecified", "0.1.2.3": "reserved", "255.255.255.255": "reserved", "240.0.0.1": "reserved", "192.0.0.170": "reserved", "198.18.0.1": "for benchmarks", "192.0.2.1": "for documentation", "203.0.113.1": "for documentation",
		"64:ff9b::a9fe:a9fe": "translated", "64:ff9b::808:808": "translated", "64:ff9b:1::a00:1": "translated", "2002:a9fe:a9fe::1": "translated", "2001:0:a9fe:a9fe::1": "translated",
		"2001:db8::1": "for documentation", "3fff::1": "for documentation", "2001:10::1": "reserved", "fec0::1": "reserved", "::7f00:1": "reserved", "4000::1": "reserved", "5f00::1": "reserved",
	} {
		if got := Kind(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
	}
	if got := Kind(netip.Addr{}); got != "invalid" {
		t.Errorf("the zero address is %q", got)
	}
}

// FuzzKind checks that no form of an IPv4 address that is not public counts as public.
func FuzzKind(f *testing.F) {
	for _, seed := range []string{"\x7f\x00\x00\x01", "\x0a\x00\x00\x01", "\xa9\xfe\xa9\xfe", "\x08\x08\x08\x08"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		address, ok := netip.AddrFromSlice(bytes)
		if !ok || !address.Is4() {
			return
		}
		four := address.As4()
		mapped := netip.AddrFrom16([16]byte{10: 0xff, 11: 0xff, 12: four[0], 13: four[1], 14: four[2], 15: four[3]})
		if Kind(mapped) != Kind(address) {
			t.Errorf("%s is %q, %s is %q", mapped, Kind(mapped), address, Kind(address))
		}
		nat64 := netip.AddrFrom16([16]byte{1: 0x64, 2: 0xff, 3: 0x9b, 12: four[0], 13: four[1], 14: four[2], 15: four[3]})
		if Kind(nat64) == "" {
			t.Errorf("%s is public", nat64)
		}
	})
}

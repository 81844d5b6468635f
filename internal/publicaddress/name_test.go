package publicaddress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, want := range map[string]string{
		"management.azure.com": "management.azure.com", "Management.AZURE.com.": "management.azure.com", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"bücher.example": "xn--bcher-kva.example", "BÜCHER。example": "xn--bcher-kva.example", "ﬁle.example": "file.example", "r3---sn.example.com": "r3---sn.example.com",
		strings.Join([]string{long, long, long, long[:61]}, "."): strings.Join([]string{long, long, long, long[:61]}, "."),
		"a1.b2": "a1.b2", "1.2.3.4.example": "1.2.3.4.example",
		// No DNS names.
		"": "", ".": "", "..": "", "a..b": "", ".a.b": "", "a.b..": "", "localhost": "", "com.": "", "a_b.example": "", "a b.example": "", "a.exa\x00mple": "", "*.example.com": "",
		"-a.example": "", "a-.example": "", "a.example:443": "", "user@a.example": "", "a.example/": "", "http://a.example": "", "a%2e.example": "", "xn--a.example": "", "xn--.example": "",
		strings.Join([]string{long, long, long, long[:62]}, "."): "", long + "a.example": "", strings.Repeat("a.", 1000): "", "\xff.example": "", "a\u200d.example": "",
		// Addresses.
		"127.0.0.1": "", "127.1": "", "0x7f.1": "", "0177.0.0.1": "", "1.2.3.4.": "", "::1": "", "[::1]": "", "[::1]:443": "", "::ffff:10.0.0.1": "", "fe80::1%eth0": "", "１２７.0.0.1": "", "1.2.3.٤": "", "example.123": "",
	} {
		got, err := CanonicalName(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v, want %q", name, got, err, want)
		}
	}
}

// FuzzCanonical checks that canonical names are their own canonical form, and are names of ASCII letters, digits, hyphens and dots.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{"management.azure.com", "Bücher.Example.", "127.0.0.1", "xn--bcher-kva.example", "a..b", "１.２.３.４", "ß.example", "0x7f.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		canonical, err := CanonicalName(name)
		if err != nil {
			return
		}
		if again, err := CanonicalName(canonical); err != nil || again != canonical {
			t.Errorf("%q is %q, whose canonical form is %q, %v", name, canonical, again, err)
		}
		if strings.ContainsFunc(canonical, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.')
		}) || len(canonical) > MaxNameLength || !strings.Contains(canonical, ".") {
			t.Errorf("%q is %q, which is no canonical name", name, canonical)
		}
		if _, err := netip.ParseAddr(canonical); err == nil {
			t.Errorf("%q is the address %q", name, canonical)
		}
	})
}

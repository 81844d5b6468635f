package partition

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/bits"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// The type markers of components in the input of the hash.
const (
	markUndefined = 0x00
	markNull      = 0x01
	markFalse     = 0x02
	markTrue      = 0x03
	markNumber    = 0x05
	markString    = 0x08
)

// EPK returns the effective partition key of a full key, or the start of the range of a prefix.
func (d Definition) EPK(k Key) string {
	switch {
	case d.Kind == KindMultiHash:
		var b strings.Builder
		for _, c := range k {
			b.WriteString(hash128(hashInput(nil, c, 0xFF)))
		}
		return b.String()
	case d.Version >= 2:
		var in []byte
		for _, c := range k {
			in = hashInput(in, c, 0xFF)
		}
		return hash128(in)
	default:
		// Version 1 has 32 bits in the low end of 16 bytes, as in the client.
		var b strings.Builder
		for _, c := range k {
			b.WriteString("000000000000000000000000")
			var sum [4]byte
			binary.BigEndian.PutUint32(sum[:], murmur32(hashInput(nil, c, 0x00)))
			b.WriteString(upperHex(sum[:]))
		}
		return b.String()
	}
}

// hashInput appends a component in the form that the hash expects.
func hashInput(dst []byte, c document.Value, stringEnd byte) []byte {
	switch c.Kind {
	case document.Null:
		return append(dst, markNull)
	case document.Bool:
		if c.Bool {
			return append(dst, markTrue)
		}
		return append(dst, markFalse)
	case document.Number:
		return binary.LittleEndian.AppendUint64(append(dst, markNumber), math.Float64bits(c.Num))
	case document.String:
		return append(append(append(dst, markString), c.Str...), stringEnd)
	}
	return append(dst, markUndefined)
}

func upperHex(b []byte) string { return strings.ToUpper(hex.EncodeToString(b)) }

// hash128 returns the hash in big-endian order with the two top bits cleared, because "FF" is the end of the space.
func hash128(in []byte) string {
	lo, hi := murmur128(in)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	b[0] &= 0x3F
	return upperHex(b[:])
}

// murmur32 is MurmurHash3_x86_32 with the seed 0.
func murmur32(data []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	var h uint32
	mix := func(k uint32) uint32 { return bits.RotateLeft32(k*c1, 15) * c2 }
	n := len(data) &^ 3
	for i := 0; i < n; i += 4 {
		h ^= mix(binary.LittleEndian.Uint32(data[i:]))
		h = bits.RotateLeft32(h, 13)*5 + 0xe6546b64
	}
	if tail := data[n:]; len(tail) > 0 {
		var k uint32
		for i := len(tail) - 1; i >= 0; i-- {
			k = k<<8 | uint32(tail[i])
		}
		h ^= mix(k)
	}
	h ^= uint32(len(data))
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

// murmur128 is MurmurHash3_x64_128 with the seed 0.
func murmur128(data []byte) (lo, hi uint64) {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	mix1 := func(k uint64) uint64 { return bits.RotateLeft64(k*c1, 31) * c2 }
	mix2 := func(k uint64) uint64 { return bits.RotateLeft64(k*c2, 33) * c1 }
	fin := func(k uint64) uint64 {
		k = (k ^ k>>33) * 0xff51afd7ed558ccd
		k = (k ^ k>>33) * 0xc4ceb9fe1a85ec53
		return k ^ k>>33
	}
	var h1, h2 uint64
	n := len(data) &^ 15
	for i := 0; i < n; i += 16 {
		h1 ^= mix1(binary.LittleEndian.Uint64(data[i:]))
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= mix2(binary.LittleEndian.Uint64(data[i+8:]))
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	if n < len(data) {
		var block [16]byte
		copy(block[:], data[n:])
		h2 ^= mix2(binary.LittleEndian.Uint64(block[8:]))
		h1 ^= mix1(binary.LittleEndian.Uint64(block[:8]))
	}
	h1 ^= uint64(len(data))
	h2 ^= uint64(len(data))
	h1 += h2
	h2 += h1
	h1, h2 = fin(h1), fin(h2)
	h1 += h2
	h2 += h1
	return h1, h2
}

// CompareEPK compares EPKs of different lengths. Missing digits count as zeros.
func CompareEPK(a, b string) int {
	n := min(len(a), len(b))
	if c := strings.Compare(a[:n], b[:n]); c != 0 {
		return c
	}
	if strings.Trim(a[n:], "0") == "" && strings.Trim(b[n:], "0") == "" {
		return 0
	}
	return len(a) - len(b)
}

// MaxEPK is the exclusive end of the space.
const MaxEPK = "FF"

// Range is a half-open interval of the EPK space. An empty Max is the end of the space.
type Range struct {
	Min, Max string
}

// Contains reports whether the range contains an EPK.
func (r Range) Contains(epk string) bool {
	return CompareEPK(epk, r.Min) >= 0 && (r.Max == "" || r.Max == MaxEPK || CompareEPK(epk, r.Max) < 0)
}

// Split divides the space into n ranges of equal size.
func (d Definition) Split(n int) []Range {
	out := make([]Range, 0, n)
	from := ""
	for i := 1; i <= n; i++ {
		to := MaxEPK
		if i < n {
			to = d.formatBoundary(d.spaceSize() / uint64(n) * uint64(i))
		}
		out = append(out, Range{Min: from, Max: to})
		from = to
	}
	return out
}

// Halve divides a range at its middle. ok is false if the range is too narrow.
func (d Definition) Halve(r Range) (left, right Range, ok bool) {
	lo, hi := d.bounds(r)
	if hi-lo < 2 {
		return r, Range{}, false
	}
	at := d.formatBoundary(lo + (hi-lo)/2)
	return Range{Min: r.Min, Max: at}, Range{Min: at, Max: r.Max}, true
}

// Width returns the size of a range, for comparisons of ranges of one definition.
func (d Definition) Width(r Range) uint64 {
	lo, hi := d.bounds(r)
	return hi - lo
}

// isVersion1 reports whether EPKs have 32 bits at the end of 16 bytes. The EPKs of other definitions begin with 64 bits,
// of which hashes use the lower 62.
func (d Definition) isVersion1() bool { return d.Kind != KindMultiHash && d.Version < 2 }

// spaceSize returns the number of positions that boundaries distinguish.
func (d Definition) spaceSize() uint64 {
	if d.isVersion1() {
		return 1 << 32
	}
	return 1 << 62
}

// formatBoundary returns the EPK of a position.
func (d Definition) formatBoundary(n uint64) string {
	var b [16]byte
	if d.isVersion1() {
		binary.BigEndian.PutUint32(b[12:], uint32(n))
	} else {
		binary.BigEndian.PutUint64(b[:8], n)
	}
	return upperHex(b[:])
}

// bounds returns the positions of a range's ends.
func (d Definition) bounds(r Range) (lo, hi uint64) {
	hi = d.spaceSize()
	if r.Max != "" && r.Max != MaxEPK {
		hi = d.parseBoundary(r.Max)
	}
	return d.parseBoundary(r.Min), hi
}

// parseBoundary returns the position of an EPK.
func (d Definition) parseBoundary(epk string) uint64 {
	b, err := hex.DecodeString((epk + strings.Repeat("0", 32))[:32])
	if err != nil {
		return 0 // unreachable: formatBoundary wrote the ranges
	}
	if d.isVersion1() {
		return uint64(binary.BigEndian.Uint32(b[12:]))
	}
	return binary.BigEndian.Uint64(b)
}

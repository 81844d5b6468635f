package partition

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"strings"
)

// EPK returns the effective partition key: 32 hexadecimal digits.
func (k Key) EPK() string {
	lo, hi := murmur128([]byte("\x08" + string(k) + "\xFF")) // the type of the component, and the end of a string
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	b[0] &= 0x3F // because "FF" is the end of the space
	return upperHex(b[:])
}

func upperHex(b []byte) string { return strings.ToUpper(hex.EncodeToString(b)) }

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

// MaxEPK is the exclusive end of the space.
const MaxEPK = "FF"

// Range is a half-open interval of the EPK space. The space begins at the empty EPK. An empty Max is the end of the space.
type Range struct {
	Min, Max string
}

// Contains reports whether the range contains an EPK.
func (r Range) Contains(epk string) bool {
	return epk >= r.Min && (r.Max == "" || epk < r.Max)
}

// Halve divides a range at its middle. ok is false if the range is too narrow.
func (r Range) Halve() (left, right Range, ok bool) {
	lo, hi := position(r.Min), uint64(1)<<62
	if r.Max != MaxEPK {
		hi = position(r.Max)
	}
	if hi-lo < 2 {
		return r, Range{}, false
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], lo+(hi-lo)/2)
	return Range{r.Min, upperHex(b[:])}, Range{upperHex(b[:]), r.Max}, true
}

// position returns the first 64 bits of an EPK, of which hashes use the lower 62.
func position(epk string) uint64 {
	b, err := hex.DecodeString((epk + strings.Repeat("0", 16))[:16])
	if err != nil {
		return 0 // unreachable: Halve wrote the boundaries
	}
	return binary.BigEndian.Uint64(b)
}

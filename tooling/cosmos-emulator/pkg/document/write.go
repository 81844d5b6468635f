package document

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Append appends v as JSON. It omits undefined properties and elements.
func Append(dst []byte, v Value) []byte {
	switch v.Kind {
	case Null:
		return append(dst, "null"...)
	case Bool:
		return strconv.AppendBool(dst, v.Bool)
	case Number:
		if v.Str != "" {
			return append(dst, v.Str...)
		}
		return appendNumber(dst, v.Num)
	case String:
		return AppendString(dst, v.Str)
	case Array:
		dst = append(dst, '[')
		first := true
		for _, e := range v.Arr {
			if !e.IsDefined() {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = Append(dst, e)
		}
		return append(dst, ']')
	case Object:
		dst = append(dst, '{')
		first := true
		for _, m := range v.Obj {
			if !m.Value.IsDefined() {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = AppendString(dst, m.Name)
			dst = append(dst, ':')
			dst = Append(dst, m.Value)
		}
		return append(dst, '}')
	}
	return dst
}

// JSON returns v as JSON.
func (v Value) JSON() string { return string(Append(nil, v)) }

// appendNumber appends a computed number.
func appendNumber(dst []byte, n float64) []byte {
	if n == math.Trunc(n) && math.Abs(n) < 1e15 {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	return strconv.AppendFloat(dst, n, 'g', -1, 64)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// Canonical returns a text that is equal for equal values and different for different ones: properties are sorted and
// numbers have one form. Continuation tokens depend on it.
func Canonical(v Value) string {
	var b strings.Builder
	appendCanonical(&b, v)
	return b.String()
}

// appendCanonical writes the canonical text of v.
func appendCanonical(b *strings.Builder, v Value) {
	switch v.Kind {
	case Undefined:
		b.WriteByte('u')
	case Number:
		b.Write(strconv.AppendFloat(nil, v.Num, 'g', -1, 64))
	case Array:
		b.WriteByte('[')
		for _, e := range v.Arr {
			appendCanonical(b, e)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case Object:
		members := slices.Clone(v.Obj)
		slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
		b.WriteByte('{')
		for _, m := range members {
			b.Write(AppendString(nil, m.Name))
			b.WriteByte(':')
			appendCanonical(b, m.Value)
			b.WriteByte(',')
		}
		b.WriteByte('}')
	default:
		b.Write(Append(nil, v))
	}
}

package document

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
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

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // an error reports invalid UTF-8
	return dst
}

package plot

import (
	"math"
	"strconv"
	"strings"
)

// Unit is the unit of values.
type Unit string

// The units.
const (
	Count     Unit = "count"
	PerSecond Unit = "per second"
	Share     Unit = "share" // 1 is 100 %
	Seconds   Unit = "seconds"
	Bytes     Unit = "bytes"
	YesOrNo   Unit = "1 or 0"
)

// absent is the text for a value that does not exist.
const absent = "–"

// Format returns a value with three significant digits and its unit.
func (u Unit) Format(value float64) string {
	switch {
	case math.IsNaN(value):
		return absent
	case math.IsInf(value, 1):
		return "∞"
	case math.IsInf(value, -1):
		return "−∞"
	}
	scaled, suffix := u.scale(math.Abs(value), value)
	switch {
	case u == YesOrNo && value == 0:
		return "no"
	case u == YesOrNo && value == 1:
		return "yes"
	}
	return digits(scaled) + suffix
}

// scale returns a value in the multiple of the unit that suits a size, and the name of the multiple.
func (u Unit) scale(size, value float64) (scaled float64, suffix string) {
	switch u {
	case Share:
		return 100 * value, " %"
	case Seconds:
		switch {
		case size == 0:
			return value, " s"
		case size < 1e-3:
			return value * 1e6, " µs"
		case size < 1:
			return value * 1e3, " ms"
		case size < 120:
			return value, " s"
		case size < 7200:
			return value / 60, " min"
		case size < 2*day:
			return value / 3600, " h"
		}
		return value / day, " d"
	case Bytes:
		names := []string{" B", " KiB", " MiB", " GiB", " TiB"}
		i := 0
		for ; size >= 1024 && i < len(names)-1; i++ {
			size /= 1024
			value /= 1024
		}
		return value, names[i]
	}
	per := ""
	if u == PerSecond {
		per = " /s"
	}
	switch {
	case size >= 1e9:
		return value / 1e9, " G" + strings.TrimPrefix(per, " ")
	case size >= 1e6:
		return value / 1e6, " M" + strings.TrimPrefix(per, " ")
	case size >= 1e4:
		return value / 1e3, " k" + strings.TrimPrefix(per, " ")
	}
	return value, per
}

// digits returns a number with three significant digits, and all digits before the decimal point.
func digits(value float64) string {
	size := math.Abs(value)
	decimals := 2
	switch {
	case size == 0:
		return "0"
	case size >= 99.95:
		decimals = 0
	case size >= 9.995:
		decimals = 1
	case size < 0.0995:
		decimals = min(9, 1-int(math.Floor(math.Log10(size))))
	}
	return trimZeros(strconv.FormatFloat(value, 'f', decimals, 64))
}

// trimZeros removes zeros after the decimal point, and the sign of a zero.
func trimZeros(text string) string {
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return strings.Replace(text, "-", "−", 1)
}

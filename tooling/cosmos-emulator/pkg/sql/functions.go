package sql

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// function evaluates a built-in function.
type function func(args []document.Value) document.Value

// builtin is a built-in function.
type builtin struct {
	min, max int // number of arguments; a max of -1 means any number
	fn       function
}

// maxStringBytes bounds the result of REPLICATE. An item cannot contain a longer string.
const maxStringBytes = 4 << 20

// functions maps the upper-case names of the built-in functions.
var functions = map[string]builtin{
	// types
	"IS_DEFINED": {1, 1, func(a []document.Value) document.Value { return document.FromBool(a[0].IsDefined()) }},
	"IS_NULL":    isKind(document.Null),
	"IS_BOOL":    isKind(document.Bool),
	"IS_NUMBER":  isKind(document.Number),
	"IS_STRING":  isKind(document.String),
	"IS_ARRAY":   isKind(document.Array),
	"IS_OBJECT":  isKind(document.Object),
	"IS_PRIMITIVE": {1, 1, func(a []document.Value) document.Value {
		return document.FromBool(a[0].Kind >= document.Null && a[0].Kind <= document.String)
	}},
	"IS_FINITE_NUMBER": isKind(document.Number),
	"IS_INTEGER": {1, 1, func(a []document.Value) document.Value {
		return document.FromBool(a[0].Kind == document.Number && a[0].Num == math.Trunc(a[0].Num))
	}},
	"TYPE": {1, 1, func(a []document.Value) document.Value {
		if !a[0].IsDefined() {
			return undefined
		}
		return document.FromString(typeName(a[0]))
	}},
	"IIF": {3, 3, func(a []document.Value) document.Value {
		if a[0].IsTrue() {
			return a[1]
		}
		return a[2]
	}},

	// strings
	"STARTSWITH":   stringTest(strings.HasPrefix),
	"ENDSWITH":     stringTest(strings.HasSuffix),
	"CONTAINS":     stringTest(strings.Contains),
	"STRINGEQUALS": stringTest(func(a, b string) bool { return a == b }),
	"LOWER":        onString(func(s string) document.Value { return document.FromString(strings.ToLower(s)) }),
	"UPPER":        onString(func(s string) document.Value { return document.FromString(strings.ToUpper(s)) }),
	"LENGTH":       onString(func(s string) document.Value { return document.FromNumber(float64(utf8.RuneCountInString(s))) }),
	"LTRIM":        onString(func(s string) document.Value { return document.FromString(strings.TrimLeftFunc(s, unicode.IsSpace)) }),
	"RTRIM":        onString(func(s string) document.Value { return document.FromString(strings.TrimRightFunc(s, unicode.IsSpace)) }),
	"TRIM":         onString(func(s string) document.Value { return document.FromString(strings.TrimSpace(s)) }),
	"REVERSE": onString(func(s string) document.Value {
		rs := []rune(s)
		slices.Reverse(rs)
		return document.FromString(string(rs))
	}),
	"CONCAT":    {2, -1, concat},
	"INDEX_OF":  {2, 3, indexOf},
	"LEFT":      {2, 2, func(a []document.Value) document.Value { return substring(a[0], zero, a[1]) }},
	"RIGHT":     {2, 2, right},
	"SUBSTRING": {3, 3, func(a []document.Value) document.Value { return substring(a[0], a[1], a[2]) }},
	"REPLACE": {3, 3, func(a []document.Value) document.Value {
		if !allKind(document.String, a) || a[1].Str == "" {
			return undefined
		}
		return document.FromString(strings.ReplaceAll(a[0].Str, a[1].Str, a[2].Str))
	}},
	"REPLICATE": {2, 2, func(a []document.Value) document.Value {
		n, ok := integer(a[1])
		if a[0].Kind != document.String || !ok || n < 0 || n > maxStringBytes || n*len(a[0].Str) > maxStringBytes {
			return undefined
		}
		return document.FromString(strings.Repeat(a[0].Str, n))
	}},
	"REGEXMATCH":      {2, 3, regexMatch},
	"TOSTRING":        {1, 1, toString},
	"STRINGTONUMBER":  parseAs(document.Number),
	"STRINGTOBOOLEAN": parseAs(document.Bool),
	"STRINGTONULL":    parseAs(document.Null),
	"STRINGTOARRAY":   parseAs(document.Array),
	"STRINGTOOBJECT":  parseAs(document.Object),
	"STRINGJOIN": {2, 2, func(a []document.Value) document.Value {
		if a[0].Kind != document.Array || a[1].Kind != document.String || !allKind(document.String, a[0].Arr) {
			return undefined
		}
		parts := make([]string, len(a[0].Arr))
		for i, v := range a[0].Arr {
			parts[i] = v.Str
		}
		return document.FromString(strings.Join(parts, a[1].Str))
	}},
	"STRINGSPLIT": {2, 2, func(a []document.Value) document.Value {
		if !allKind(document.String, a) || a[1].Str == "" {
			return undefined
		}
		var out []document.Value
		for _, s := range strings.Split(a[0].Str, a[1].Str) {
			out = append(out, document.FromString(s))
		}
		return document.FromArray(out)
	}},

	// numbers
	"ABS":     onNumber(math.Abs),
	"CEILING": onNumber(math.Ceil),
	"FLOOR":   onNumber(math.Floor),
	"TRUNC":   onNumber(math.Trunc),
	"SQRT":    onNumber(math.Sqrt),
	"SQUARE":  onNumber(func(n float64) float64 { return n * n }),
	"EXP":     onNumber(math.Exp),
	"LOG10":   onNumber(math.Log10),
	"ACOS":    onNumber(math.Acos),
	"ASIN":    onNumber(math.Asin),
	"ATAN":    onNumber(math.Atan),
	"COS":     onNumber(math.Cos),
	"SIN":     onNumber(math.Sin),
	"TAN":     onNumber(math.Tan),
	"COT":     onNumber(func(n float64) float64 { return 1 / math.Tan(n) }),
	"DEGREES": onNumber(func(n float64) float64 { return n * 180 / math.Pi }),
	"RADIANS": onNumber(func(n float64) float64 { return n * math.Pi / 180 }),
	"SIGN": onNumber(func(n float64) float64 {
		switch {
		case n > 0:
			return 1
		case n < 0:
			return -1
		}
		return 0
	}),
	"PI":    {0, 0, func([]document.Value) document.Value { return document.FromNumber(math.Pi) }},
	"ROUND": {1, 2, round},
	"LOG": {1, 2, func(a []document.Value) document.Value {
		if !allKind(document.Number, a) {
			return undefined
		}
		if len(a) == 1 {
			return document.FromNumber(math.Log(a[0].Num))
		}
		return document.FromNumber(math.Log(a[0].Num) / math.Log(a[1].Num))
	}},
	"POWER": onNumbers(math.Pow),
	"ATN2":  onNumbers(math.Atan2),

	// arrays and objects
	"ARRAY_CONTAINS":     {2, 3, arrayContains},
	"ARRAY_CONTAINS_ANY": {2, -1, func(a []document.Value) document.Value { return arrayContainsAny(a, false) }},
	"ARRAY_CONTAINS_ALL": {2, -1, func(a []document.Value) document.Value { return arrayContainsAny(a, true) }},
	"ARRAY_LENGTH": {1, 1, func(a []document.Value) document.Value {
		if a[0].Kind != document.Array {
			return undefined
		}
		return document.FromNumber(float64(len(a[0].Arr)))
	}},
	"ARRAY_CONCAT": {2, -1, func(a []document.Value) document.Value {
		if !allKind(document.Array, a) {
			return undefined
		}
		var out []document.Value
		for _, v := range a {
			out = append(out, v.Arr...)
		}
		return document.FromArray(out)
	}},
	"ARRAY_SLICE":  {2, 3, arraySlice},
	"SETINTERSECT": {2, 2, func(a []document.Value) document.Value { return setOperation(a, true) }},
	"SETUNION":     {2, 2, func(a []document.Value) document.Value { return setOperation(a, false) }},
	"CHOOSE": {2, -1, func(a []document.Value) document.Value {
		n, ok := integer(a[0])
		if !ok || n < 1 || n >= len(a) {
			return undefined
		}
		return a[n]
	}},
	"OBJECTTOARRAY": {1, 3, objectToArray},

	// time
	"GETCURRENTDATETIME": {0, 0, func([]document.Value) document.Value {
		return document.FromString(time.Now().UTC().Format(dateTimeLayout))
	}},
	"GETCURRENTTIMESTAMP": {0, 0, func([]document.Value) document.Value { return document.FromNumber(float64(time.Now().UnixMilli())) }},
	"DATETIMETOTIMESTAMP": {1, 1, func(a []document.Value) document.Value {
		t, err := time.Parse(time.RFC3339Nano, a[0].Str)
		if a[0].Kind != document.String || err != nil {
			return undefined
		}
		return document.FromNumber(float64(t.UnixMilli()))
	}},
	"TIMESTAMPTODATETIME": {1, 1, func(a []document.Value) document.Value {
		n, ok := integer(a[0])
		if !ok {
			return undefined
		}
		return document.FromString(time.UnixMilli(int64(n)).UTC().Format(dateTimeLayout))
	}},

	// full text: words are sequences of letters and digits, compared without case; there is no stemming
	"FULLTEXTCONTAINS":    {2, 2, func(a []document.Value) document.Value { return fullText(a, true) }},
	"FULLTEXTCONTAINSALL": {2, -1, func(a []document.Value) document.Value { return fullText(a, true) }},
	"FULLTEXTCONTAINSANY": {2, -1, func(a []document.Value) document.Value { return fullText(a, false) }},
}

// dateTimeLayout is the layout of dates in the service.
const dateTimeLayout = "2006-01-02T15:04:05.0000000Z"

var zero = document.FromNumber(0)

// isKind returns a test of the kind of a value.
func isKind(k document.Kind) builtin {
	return builtin{1, 1, func(a []document.Value) document.Value { return document.FromBool(a[0].Kind == k) }}
}

// onString returns a function of a string.
func onString(f func(string) document.Value) builtin {
	return builtin{1, 1, func(a []document.Value) document.Value {
		if a[0].Kind != document.String {
			return undefined
		}
		return f(a[0].Str)
	}}
}

// onNumber returns a function of a number.
func onNumber(f func(float64) float64) builtin {
	return builtin{1, 1, func(a []document.Value) document.Value {
		if a[0].Kind != document.Number {
			return undefined
		}
		return document.FromNumber(f(a[0].Num))
	}}
}

// onNumbers returns a function of two numbers.
func onNumbers(f func(a, b float64) float64) builtin {
	return builtin{2, 2, func(a []document.Value) document.Value {
		if !allKind(document.Number, a) {
			return undefined
		}
		return document.FromNumber(f(a[0].Num, a[1].Num))
	}}
}

// stringTest returns a test of two strings with an optional argument to ignore case.
func stringTest(f func(a, b string) bool) builtin {
	return builtin{2, 3, func(a []document.Value) document.Value {
		if !allKind(document.String, a[:2]) {
			return undefined
		}
		x, y := a[0].Str, a[1].Str
		if len(a) == 3 && a[2].IsDefined() {
			if a[2].Kind != document.Bool {
				return undefined
			}
			if a[2].Bool {
				x, y = strings.ToLower(x), strings.ToLower(y)
			}
		}
		return document.FromBool(f(x, y))
	}}
}

// parseAs returns a function that parses a string as a JSON value of a kind.
func parseAs(k document.Kind) builtin {
	return onString(func(s string) document.Value {
		v, err := document.Parse([]byte(s))
		if err != nil || v.Kind != k {
			return undefined
		}
		return v
	})
}

// allKind reports whether all values have a kind.
func allKind(k document.Kind, vs []document.Value) bool {
	return !slices.ContainsFunc(vs, func(v document.Value) bool { return v.Kind != k })
}

// integer returns the value of a number without a fraction.
func integer(v document.Value) (int, bool) {
	return int(v.Num), v.Kind == document.Number && v.Num == math.Trunc(v.Num) && math.Abs(v.Num) < 1<<52
}

// concat is CONCAT.
func concat(a []document.Value) document.Value {
	if !allKind(document.String, a) {
		return undefined
	}
	var b strings.Builder
	for _, v := range a {
		b.WriteString(v.Str)
	}
	return document.FromString(b.String())
}

// indexOf is INDEX_OF.
func indexOf(a []document.Value) document.Value {
	if !allKind(document.String, a[:2]) {
		return undefined
	}
	rs := []rune(a[0].Str)
	from := 0
	if len(a) == 3 {
		n, ok := integer(a[2])
		if !ok || n < 0 || n > len(rs) {
			return undefined
		}
		from = n
	}
	rest := string(rs[from:])
	at := strings.Index(rest, a[1].Str)
	if at < 0 {
		return document.FromNumber(-1)
	}
	return document.FromNumber(float64(from + utf8.RuneCountInString(rest[:at])))
}

// substring is SUBSTRING. It counts characters.
func substring(s, from, length document.Value) document.Value {
	start, ok1 := integer(from)
	n, ok2 := integer(length)
	if s.Kind != document.String || !ok1 || !ok2 {
		return undefined
	}
	rs := []rune(s.Str)
	start = min(max(start, 0), len(rs))
	n = min(max(n, 0), len(rs)-start)
	return document.FromString(string(rs[start : start+n]))
}

// right is RIGHT.
func right(a []document.Value) document.Value {
	n, ok := integer(a[1])
	if a[0].Kind != document.String || !ok {
		return undefined
	}
	rs := []rune(a[0].Str)
	return document.FromString(string(rs[len(rs)-min(max(n, 0), len(rs)):]))
}

// regexMatch is REGEXMATCH with the flags i, m, s and x.
func regexMatch(a []document.Value) document.Value {
	if !allKind(document.String, a) {
		return undefined
	}
	flags := ""
	if len(a) == 3 {
		for _, f := range a[2].Str {
			if !strings.ContainsRune("imsx", f) {
				return undefined
			}
		}
		flags = strings.ReplaceAll(a[2].Str, "x", "")
		if flags != "" {
			flags = "(?" + flags + ")"
		}
	}
	re, err := regexp.Compile(flags + a[1].Str)
	if err != nil {
		return undefined
	}
	return document.FromBool(re.MatchString(a[0].Str))
}

// toString is TOSTRING.
func toString(a []document.Value) document.Value {
	switch a[0].Kind {
	case document.Undefined:
		return undefined
	case document.String:
		return a[0]
	}
	return document.FromString(a[0].JSON())
}

// round is ROUND.
func round(a []document.Value) document.Value {
	if !allKind(document.Number, a) {
		return undefined
	}
	scale := 1.0
	if len(a) == 2 {
		scale = math.Pow(10, math.Trunc(a[1].Num))
	}
	return document.FromNumber(math.Round(a[0].Num*scale) / scale)
}

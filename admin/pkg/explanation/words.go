package explanation

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// join returns words as a list in a sentence.
func join(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// count returns a number with its noun in singular or plural.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// times returns how often something happened.
func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// duration returns a duration in words, in its largest unit, or in two units where the second matters.
func duration(d time.Duration) string {
	switch {
	case d < time.Second:
		return "less than a second"
	case d == time.Minute:
		return "a minute"
	case d == time.Hour:
		return "an hour"
	case d < 2*time.Minute:
		return count(int64(d/time.Second), "second")
	case d < 2*time.Hour:
		return count(int64(d/time.Minute), "minute")
	case d < 48*time.Hour:
		hours, minutes := count(int64(d/time.Hour), "hour"), d%time.Hour/time.Minute
		if minutes == 0 {
			return hours
		}
		return hours + " " + count(int64(minutes), "minute")
	}
	return count(int64(d/(24*time.Hour)), "day")
}

// clock returns a time of day in UTC, with the date if it is not the date of the facts.
func (f *facts) clock(t time.Time) string {
	t = t.UTC()
	if t.Format(time.DateOnly) == f.now.UTC().Format(time.DateOnly) {
		return t.Format("15:04:05") + " UTC"
	}
	return t.Format("2006-01-02 15:04:05") + " UTC"
}

// since returns the age and the start of a state, as in `for 4 minutes (since 03:12:07 UTC)`.
func (f *facts) since(t time.Time) string {
	if t.IsZero() {
		return "for an unknown time"
	}
	return "for " + duration(f.now.Sub(t)) + " (since " + f.clock(t) + ")"
}

// operationNoun returns the noun for a request of a customer.
func operationNoun(request string) string {
	switch request {
	case "RequestCredential":
		return "credential request"
	case "RevokeCredentials":
		return "revocation"
	}
	return strings.ToLower(request)
}

// requestNoun returns the noun for what a request of a customer asks for.
func requestNoun(request string) string {
	switch request {
	case "Create":
		return "creation"
	case "Delete":
		return "deletion"
	}
	return operationNoun(request)
}

func upperFirst(s string) string { return mapFirst(s, unicode.ToUpper) }

func lowerFirst(s string) string { return mapFirst(s, unicode.ToLower) }

// mapFirst replaces the first character of s, which may have several bytes.
func mapFirst(s string, replace func(rune) rune) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 || r == utf8.RuneError {
		return s
	}
	return string(replace(r)) + s[size:]
}

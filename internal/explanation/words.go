package explanation

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// width is where lines are broken.
const width = 96

// Text is the answer as it is printed: paragraphs, and commands on lines of their own.
func (e Explanation) Text() string {
	var b strings.Builder
	for i, finding := range e.Findings {
		if i > 0 {
			b.WriteString("\n---\n\n")
		}
		paragraphs := []string{finding.Says, strings.Join(finding.Because, " "), strings.Join(finding.Acts, " ")}
		for j, paragraph := range paragraphs {
			if paragraph != "" {
				if j > 0 {
					b.WriteByte('\n')
				}
				b.WriteString(wrap(paragraph))
			}
		}
		if finding.Command != "" {
			b.WriteString("\n    " + finding.Command + "\n")
		}
	}
	for _, rest := range [][]string{e.About, e.Caveats} {
		if len(rest) > 0 {
			b.WriteString("\n" + wrap(strings.Join(rest, " ")))
		}
	}
	return b.String()
}

// wrap breaks a paragraph into lines, and keeps the breaks that it has and the words of indented lines together.
func wrap(paragraph string) string {
	var b strings.Builder
	for line := range strings.Lines(paragraph) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "    ") {
			b.WriteString(line + "\n")
			continue
		}
		length := 0
		for word := range strings.FieldsSeq(line) {
			runes := len([]rune(word))
			switch {
			case length == 0:
			case length+1+runes > width:
				b.WriteByte('\n')
				length = 0
			default:
				b.WriteByte(' ')
				length++
			}
			b.WriteString(word)
			length += runes
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func indent(lines []string) string { return "    " + strings.Join(lines, "\n    ") }

// and lists words as in a sentence.
func and(words []string) string {
	switch len(words) {
	case 0:
		return ""
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// plural counts.
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// lasting is a time span in words: in its largest unit, or two where the second matters.
func lasting(d time.Duration) string {
	switch {
	case d < time.Second:
		return "less than a second"
	case d == time.Minute:
		return "a minute"
	case d == time.Hour:
		return "an hour"
	case d < 2*time.Minute:
		return plural(int64(d/time.Second), "second")
	case d < 2*time.Hour:
		return plural(int64(d/time.Minute), "minute")
	case d < 48*time.Hour:
		hours, minutes := plural(int64(d/time.Hour), "hour"), d%time.Hour/time.Minute
		if minutes == 0 {
			return hours
		}
		return hours + " " + plural(int64(minutes), "minute")
	}
	return plural(int64(d/(24*time.Hour)), "day")
}

// clock is a time as it is said on the day of the facts, or with its date.
func (f *Facts) clock(t time.Time) string {
	t = t.UTC()
	if t.Format(time.DateOnly) == f.Now.UTC().Format(time.DateOnly) {
		return t.Format("15:04:05") + " UTC"
	}
	return t.Format("2006-01-02 15:04:05") + " UTC"
}

// since is `for 4 minutes, since 03:12:07 UTC`.
func (f *Facts) since(t time.Time) string {
	if t.IsZero() {
		return "for a time that is not known"
	}
	return "for " + lasting(f.Now.Sub(t)) + ", since " + f.clock(t)
}

// quote puts what somebody else said between quotation marks, as one line.
func quote(text string) string {
	return "“" + strings.Join(strings.Fields(text), " ") + "”"
}

// said is what a layer said, with its reason.
func said(who, message, reason string) string {
	switch {
	case message == "" && reason == "":
		return ""
	case message == "":
		return who + " says " + reason + "."
	case reason == "" || reason == "AsExpected":
		return who + " says " + quote(message) + "."
	}
	return who + " says " + quote(message) + " (" + reason + ")."
}

// noun is what a request makes of an operation.
func noun(request string) string {
	switch request {
	case "RequestCredential":
		return "request for a credential"
	case "RevokeCredentials":
		return "revocation"
	}
	return strings.ToLower(request)
}

// upper begins a sentence, and lower goes on with one.
func upper(s string) string { return begin(s, unicode.ToUpper) }

func lower(s string) string { return begin(s, unicode.ToLower) }

// begin changes the first character, whose bytes may be several.
func begin(s string, change func(rune) rune) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 || r == utf8.RuneError {
		return s
	}
	return string(change(r)) + s[size:]
}

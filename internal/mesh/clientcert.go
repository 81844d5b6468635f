package mesh

import (
	"errors"
	"strings"
)

// forwardedCert is what a proxy says about the certificate of its client, in one element of the header x-forwarded-client-cert.
type forwardedCert struct {
	// by are the URIs in the certificate of the proxy, and uris those in the certificate of its client.
	by, uris []string
}

// Errors of lastForwarded. They contain nothing of the header, because a client can have sent a part of it.
var (
	errQuotes = errors.New("a value has a misplaced quotation mark")
	errPair   = errors.New("an element is not a list of KEY=VALUE")
)

// lastForwarded returns the last element of the header, which the nearest proxy has appended. The elements before it may come from the
// client. It is an error if any element is malformed: then it is not certain where the last one begins.
//
// Elements are separated by commas, and consist of pairs KEY=VALUE separated by semicolons. A value with one of these characters is in
// quotation marks, in which a backslash precedes a quotation mark. Keys can be repeated.
func lastForwarded(header string) (forwardedCert, error) {
	var element forwardedCert
	for rest := header; ; {
		key, after, ok := strings.Cut(rest, "=")
		key = strings.TrimLeft(key, " \t") // a client can send a list with spaces
		if !ok || key == "" || strings.ContainsAny(key, `",; `) {
			return forwardedCert{}, errPair
		}
		value, end, err := forwardedValue(after)
		if err != nil {
			return forwardedCert{}, err
		}
		switch strings.ToLower(key) {
		case "by":
			element.by = append(element.by, value)
		case "uri":
			element.uris = append(element.uris, value)
		}
		switch {
		case end == "":
			return element, nil
		case end[0] == ',':
			element = forwardedCert{}
		}
		rest = end[1:]
	}
}

// forwardedValue returns the value at the beginning of text, and the text from the separator after it; empty at the end.
func forwardedValue(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, ",;")
		if end < 0 {
			end = len(text)
		}
		if strings.Contains(text[:end], `"`) {
			return "", "", errQuotes
		}
		return text[:end], text[end:], nil
	}
	var unquoted strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			if rest = text[i+1:]; rest != "" && rest[0] != ',' && rest[0] != ';' {
				return "", "", errQuotes
			}
			return unquoted.String(), rest, nil
		case '\\':
			i++
			if i == len(text) {
				return "", "", errQuotes
			}
		}
		unquoted.WriteByte(text[i])
	}
	return "", "", errQuotes
}

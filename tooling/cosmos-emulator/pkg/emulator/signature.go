package emulator

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"
)

// clockSkew is the permitted difference between the date of a request and the server's clock.
const clockSkew = 15 * time.Minute

// checkSignature verifies a signature with the master key.
func (s *Server) checkSignature(req *request, sig string) error {
	date := req.r.Header.Get(headerDate)
	if date == "" {
		return unauthorized("Required Header x-ms-date is missing.")
	}
	payload := strings.ToLower(req.r.Method) + "\n" + strings.ToLower(req.resourceType) + "\n" + req.link + "\n" + strings.ToLower(date) + "\n\n"
	if s.signed(payload, sig) {
		return s.checkDate(date)
	}
	return unauthorized("The input authorization token can't serve the request. The wrong key is being used or the expected payload is not built as per the protocol. "+
		"For more info: https://aka.ms/cosmosdb-tsg-unauthorized. Server used the following payload to sign: '%s'", payload)
}

// signed reports whether sig is the signature of a text in base64.
func (s *Server) signed(text, sig string) bool {
	mac := s.macs.Get().(hash.Hash)
	defer s.macs.Put(mac)
	mac.Reset()
	_, _ = io.WriteString(mac, text) // never fails (hash.Hash)
	var sum [sha256.Size]byte
	var want [(sha256.Size + 2) / 3 * 4]byte
	base64.StdEncoding.Encode(want[:], mac.Sum(sum[:0]))
	return subtle.ConstantTimeCompare([]byte(sig), want[:]) == 1
}

// checkDate returns an error if the date of a signature is too far from the server's clock.
func (s *Server) checkDate(date string) error {
	t, err := http.ParseTime(date)
	if err != nil {
		return unauthorized("The date %q is not in the format of RFC 1123.", date)
	}
	if d := s.now().Sub(t); d > clockSkew || d < -clockSkew {
		return &statusError{status: http.StatusForbidden, message: fmt.Sprintf(
			"The authorization token is not valid at the current time. Please create another token and retry (token start time: %s, current server time: %s).",
			t.UTC().Format(http.TimeFormat), s.now().UTC().Format(http.TimeFormat))}
	}
	return nil
}

package emulator

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
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
		date = req.r.Header.Get("Date")
	}
	if date == "" {
		return unauthorized("Required Header date or x-ms-date is missing.")
	}
	payload := ""
	for _, link := range []string{req.link, strings.ToLower(lastSegment(req.link))} {
		text := strings.ToLower(req.r.Method) + "\n" + strings.ToLower(req.resourceType) + "\n" + link + "\n" + strings.ToLower(date) + "\n\n"
		if payload == "" {
			payload = text
		}
		if s.signed(text, sig) {
			return s.checkDate(date)
		}
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

// lastSegment returns the RID of a link that is made of RIDs. SDKs sign only the RID of these links.
func lastSegment(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

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

// signedForEmulator reports whether a token is a JWT with the master key in place of the signature.
func (s *Server) signedForEmulator(token string) bool {
	if s.opts.Key == "" || strings.Count(token, ".") != 2 {
		return false
	}
	want := base64.RawURLEncoding.EncodeToString([]byte(s.opts.Key))
	return subtle.ConstantTimeCompare([]byte(token[strings.LastIndexByte(token, '.')+1:]), []byte(want)) == 1
}

// checkEmulatorToken verifies the token that SDKs use for Entra authentication on an emulator. It has the rights of the key.
func (s *Server) checkEmulatorToken(token string) error {
	if !s.signedForEmulator(token) {
		return unauthorized("The token is not signed for this account: a token for an emulator is a JWT with the master key in place of its signature.")
	}
	parts := strings.Split(token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return unauthorized("The token's payload is not base64url.")
	}
	var claims struct {
		NotBefore int64 `json:"nbf"`
		Expires   int64 `json:"exp"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		return unauthorized("The token's payload is not JSON.")
	}
	now := s.now()
	if now.Before(time.Unix(claims.NotBefore, 0).Add(-clockSkew)) || !now.Before(time.Unix(claims.Expires, 0)) {
		return unauthorized("The token has expired or is not valid yet.")
	}
	return nil
}

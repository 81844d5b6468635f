package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
)

// The steps of a probe, as in details.
const (
	stepTarget    = "target"
	stepConnect   = "connect"
	stepHandshake = "handshake"
	stepRequest   = "request"
	stepResponse  = "response"
)

// maxDetail is the maximum length of a detail in bytes, maxChecks the number of failed checks that it lists.
const (
	maxDetail = 200
	maxChecks = 5
)

var errTooLarge = errors.New("the response is too large")

// outcomeOf returns the class of the error of a step.
func outcomeOf(step string, err error) Outcome {
	var (
		name         *net.DNSError
		verification *tls.CertificateVerificationError
		network      net.Error
	)
	switch {
	case step == stepTarget, isLocal(err):
		return Local
	case errors.As(err, &name):
		return DNS
	case errors.As(err, &verification):
		return outcomeOfCertificate(verification)
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ENETDOWN):
		return Unreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network) && network.Timeout():
		if step == stepConnect {
			return ConnectTimeout
		}
		return Timeout
	case isReset(err):
		return Reset
	case step == stepHandshake:
		return TLS
	case step == stepResponse:
		return Malformed
	}
	return Unreachable
}

// isLocal reports whether an error is of monitor's own process or machine, or the end of its context.
func isLocal(err error) bool {
	for _, local := range []error{context.Canceled, syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM, syscall.EACCES, net.ErrClosed} {
		if errors.Is(err, local) {
			return true
		}
	}
	return false
}

func isReset(err error) bool {
	for _, reset := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED} {
		if errors.Is(err, reset) {
			return true
		}
	}
	return false
}

// outcomeOfCertificate returns why a certificate was not accepted.
func outcomeOfCertificate(err *tls.CertificateVerificationError) Outcome {
	var (
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
	)
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return CertificateExpired
	case errors.As(err, &name):
		return CertificateName
	}
	return CertificateUntrusted
}

// outcomeOfStatus returns the class of a complete response. For a failed health check the detail lists the failed checks;
// kube-apiserver writes them as "[-]etcd failed: reason withheld".
func outcomeOfStatus(status int, body []byte) (Outcome, string) {
	switch {
	case status == http.StatusOK:
		return OK, ""
	case status == http.StatusTooManyRequests:
		return Overloaded, "status 429"
	case status < 500:
		return Rejected, fmt.Sprintf("status %d", status)
	}
	failed := failedChecks(body)
	outcome, text := ServerError, fmt.Sprintf("status %d", status)
	for _, check := range failed {
		if check == "etcd" || strings.HasPrefix(check, "etcd-") {
			outcome = Etcd
		}
	}
	if len(failed) > 0 {
		text += ": " + strings.Join(failed[:min(len(failed), maxChecks)], ", ")
	}
	return outcome, clip(text)
}

// failedChecks returns the names of the failed checks in the body of a health check.
func failedChecks(body []byte) []string {
	var failed []string
	for line := range bytes.Lines(body) {
		rest, ok := bytes.CutPrefix(line, []byte("[-]"))
		if !ok {
			continue
		}
		if name, _, ok := bytes.Cut(rest, []byte(" ")); ok && len(name) > 0 {
			failed = append(failed, printable(string(name)))
		}
	}
	return failed
}

// detail returns an error for people.
func detail(step string, err error) string { return clip(step + ": " + printable(err.Error())) }

// printable replaces control characters, because errors can contain text of the server.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

func clip(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	return strings.ToValidUTF8(text[:maxDetail-3], "") + "…"
}

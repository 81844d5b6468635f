package probe

import "time"

// Vantage is the place from which a probe was sent.
type Vantage string

// The vantages.
const (
	// Outside is the service cluster. Its probes use the public name of the API server, as customers do.
	Outside Vantage = "outside"
	// Inside is the management cluster of the control plane. Its probes use the address of the service.
	Inside Vantage = "inside"
)

// Vantages returns all vantages.
func Vantages() []Vantage { return []Vantage{Outside, Inside} }

// Check is the health check of kube-apiserver that a probe requests.
type Check string

// The health checks. Anonymous clients may use both.
const (
	// Livez fails if the API server is broken. kube-apiserver includes a check of etcd.
	Livez Check = "livez"
	// Readyz also fails while the API server starts or terminates.
	Readyz Check = "readyz"
)

// Path returns the path of the check.
func (c Check) Path() string { return "/" + string(c) }

// Outcome is the class of a probe's result.
type Outcome string

// The outcomes, in the order of the steps of a probe.
const (
	// OK means that the API server answered 200 in time.
	OK Outcome = "ok"
	// Local means that the probe failed in monitor's own process or machine, for example for lack of file descriptors. It
	// reports nothing about the cluster.
	Local Outcome = "local"
	// DNS means that the name of the API server was not resolved.
	DNS Outcome = "dns"
	// Unreachable means that the network reported that it has no route to the address.
	Unreachable Outcome = "unreachable"
	// Refused means that no process listens at the address.
	Refused Outcome = "refused"
	// ConnectTimeout means that the connection was not established before the deadline: packets are lost or dropped.
	ConnectTimeout Outcome = "connect_timeout"
	// Timeout means that the connection was established, and the handshake or the response was not complete before the
	// deadline.
	Timeout Outcome = "timeout"
	// Reset means that the other side closed the connection without a complete response.
	Reset Outcome = "reset"
	// TLS means that the handshake failed for a reason other than the certificate.
	TLS Outcome = "tls"
	// CertificateExpired means that the serving certificate or one of its authorities is not valid at this time.
	CertificateExpired Outcome = "certificate_expired"
	// CertificateUntrusted means that no trusted authority signed the serving certificate.
	CertificateUntrusted Outcome = "certificate_untrusted"
	// CertificateName means that the serving certificate is for another name.
	CertificateName Outcome = "certificate_name"
	// Malformed means that the response is not HTTP, or too large.
	Malformed Outcome = "malformed"
	// Overloaded means status 429: the API server rejected the probe to limit its load.
	Overloaded Outcome = "overloaded"
	// Etcd means a status of 500 or more whose body reports that the check of etcd failed.
	Etcd Outcome = "etcd"
	// ServerError means another status of 500 or more.
	ServerError Outcome = "server_error"
	// Rejected means any other status but 200.
	Rejected Outcome = "rejected"
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OK, Local, DNS, Unreachable, Refused, ConnectTimeout, Timeout, Reset, TLS, CertificateExpired, CertificateUntrusted, CertificateName,
		Malformed, Overloaded, Etcd, ServerError, Rejected}
}

// Reached reports whether a server answered the probe with HTTP, or presented a certificate. If it did, the network between
// monitor and the server works.
func (o Outcome) Reached() bool {
	switch o {
	case OK, CertificateExpired, CertificateUntrusted, CertificateName, Malformed, Overloaded, Etcd, ServerError, Rejected:
		return true
	}
	return false
}

// Result is the result of one probe.
type Result struct {
	Vantage Vantage
	Check   Check
	// Time is when the probe ended, and Duration how long it took.
	Time     time.Time
	Duration time.Duration
	Outcome  Outcome
	// Status is the HTTP status, or 0 without a response.
	Status int
	// Detail explains the outcome for people: the failed step with its error, or the failed checks of the response. At most
	// 200 bytes.
	Detail string
	// CertificateEnd is the earliest end of validity in the chain of the serving certificate. It is zero if the server
	// presented none.
	CertificateEnd time.Time
}

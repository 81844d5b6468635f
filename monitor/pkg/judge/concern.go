package judge

import (
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// Kind is the kind of a concern.
type Kind string

// The kinds of concerns.
const (
	ShardUnreachable     Kind = "shard_unreachable"
	NameUnresolved       Kind = "name_unresolved"
	WayBroken            Kind = "way_broken"
	InsideUnreachable    Kind = "inside_unreachable"
	APIUnreachable       Kind = "api_unreachable"
	APIHangs             Kind = "api_hangs"
	APIFails             Kind = "api_fails"
	APIOverloaded        Kind = "api_overloaded"
	EtcdFails            Kind = "etcd_fails"
	KeyUnusable          Kind = "key_unusable"
	TLSFails             Kind = "tls_fails"
	CertificateExpired   Kind = "certificate_expired"
	CertificateUntrusted Kind = "certificate_untrusted"
	CertificateName      Kind = "certificate_name"
	CertificateExpiring  Kind = "certificate_expiring"
	ProbeRejected        Kind = "probe_rejected"
	Slow                 Kind = "slow"
	// Concerns of the guest, which the customer's workloads notice and clients of the API do not.
	MachinesMissing       Kind = "machines_missing"
	NodesNotReady         Kind = "nodes_not_ready"
	DataPlaneDisconnected Kind = "data_plane_disconnected"
	Degraded              Kind = "degraded"
	OperatorsFail         Kind = "operators_fail"
)

// Fault is who causes a concern and can end it.
type Fault string

// The faults.
const (
	Customer Fault = "customer"
	Service  Fault = "service"
)

// Concern is one thing that is wrong with a cluster.
type Concern struct {
	Kind  Kind
	Since time.Time
	Fault Fault
	// Summary states what is wrong with the API, without a subject's name: "its etcd does not answer".
	Summary string
	// Evidence is what monitor saw, Help what an engineer or the customer does about it. Help is a sentence.
	Evidence, Help string
}

// advice is the part of a concern that follows from its kind.
type advice struct {
	fault   Fault
	summary string
	help    string
}

var advices = map[Kind]advice{
	ShardUnreachable:     {Service, "most APIs of its management cluster do not answer", "Check the management cluster of the shard: its nodes, its network and its load balancer."},
	NameUnresolved:       {Service, "its name cannot be resolved", "Check the DNS record of the API and the condition ExternalDNSReachable of the HostedCluster."},
	WayBroken:            {Service, "the way to it is broken, and its control plane works", "Check the router, the load balancer and the DNS record in front of it."},
	InsideUnreachable:    {Service, "it does not answer inside its management cluster", "Customers reach the API. Check the network policies between monitor and the control plane."},
	APIUnreachable:       {Service, "no connection to it can be opened", "Check the pods of kube-apiserver and the router in the namespace of the control plane."},
	APIHangs:             {Service, "it accepts connections and does not answer", "The connection opens and nothing answers. Check CPU and memory of kube-apiserver, and restart it if it hangs."},
	APIFails:             {Service, "it fails its health checks", "Read the log of kube-apiserver; the evidence lists the health checks that failed."},
	APIOverloaded:        {Customer, "it rejects requests because it has too many", "Find the clients that send too many requests in the audit log of the API server, or set a larger size class."},
	EtcdFails:            {Service, "its etcd does not answer", "Check the pods and volumes of etcd in the namespace of the control plane."},
	KeyUnusable:          {Customer, "the customer's key for the encryption of etcd cannot be used", "The customer must restore the access of the cluster's identity to the key in the key vault."},
	TLSFails:             {Service, "it does not complete TLS handshakes", "Check what listens at the address of the API: it does not complete a TLS handshake."},
	CertificateExpired:   {Service, "its serving certificate has expired", "Renew the serving certificate of the API server."},
	CertificateUntrusted: {Service, "no trusted authority signed its serving certificate", "The API server presents a certificate of another authority. Check its serving certificate and what answers at its address."},
	CertificateName:      {Service, "its serving certificate is for another name", "The API server presents a certificate for another name. Check its serving certificate and the router."},
	CertificateExpiring:  {Service, "its serving certificate ends soon", "The renewal of the serving certificate is late. Check the issuer and the synchronization of its Secret."},
	ProbeRejected:        {Service, "it rejects health checks", "The API server does not allow anonymous health checks. Check its authorization and what answers at its address."},
	Slow:                 {Service, "it answers slowly", "Check CPU, memory and etcd of the control plane, and its size class."},

	MachinesMissing:       {Service, "machines of its node pools do not run", "Read the message of the node pool. Check the quota of the subscription, the subnet and the operations of the virtual machines."},
	NodesNotReady:         {Service, "nodes of its node pools are not ready", "The machines run. Check that they reach the API server and the ignition endpoint from the customer's network, and that their certificate requests are approved."},
	DataPlaneDisconnected: {Service, "its control plane does not reach the nodes", "Check konnectivity in the namespace of the control plane, and the outbound rules of the customer's network."},
	Degraded:              {Service, "its operators are degraded", "Read the conditions of the HostedCluster and of the cluster operators."},
	OperatorsFail:         {Service, "cluster operators fail", "Read the ClusterOperators that the evidence names, in a session of mode read. The customer can be the cause, with a change of its ingress or its network."},
}

// Kinds returns all kinds of concerns, in order of name.
func Kinds() []Kind {
	kinds := make([]Kind, 0, len(advices))
	for kind := range advices {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

func (v *Verdict) add(kind Kind, since time.Time, evidence string) {
	a := advices[kind]
	v.Concerns = append(v.Concerns, Concern{Kind: kind, Since: since, Fault: a.fault, Summary: a.summary, Evidence: evidence, Help: a.help})
}

func (v *Verdict) has(kind Kind) bool {
	return slices.ContainsFunc(v.Concerns, func(c Concern) bool { return c.Kind == kind })
}

// kindOf returns the concern that a failed probe shows.
func kindOf(failure *probe.Result) Kind {
	switch failure.Outcome {
	case probe.DNS:
		return NameUnresolved
	case probe.Timeout:
		return APIHangs
	case probe.TLS, probe.Malformed:
		return TLSFails
	case probe.CertificateExpired:
		return CertificateExpired
	case probe.CertificateUntrusted:
		return CertificateUntrusted
	case probe.CertificateName:
		return CertificateName
	case probe.Overloaded:
		return APIOverloaded
	case probe.Etcd:
		return EtcdFails
	case probe.ServerError:
		return APIFails
	case probe.Rejected:
		return ProbeRejected
	}
	return APIUnreachable
}

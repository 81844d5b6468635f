package hub

// The most entries of the lists and maps of a resource. The tables of the api-versions use them to end the decoding of a field,
// and the rules of the frontend to reject it. An update may keep a stored value with more entries.
//
// ARM defines the number of tags, and the OpenAPI documents those of an external authentication, CIDRs and mirrors. The others are
// limits of the service, because an accepted resource must fit into one document of Cosmos DB and one message to a management cluster.
const (
	MaxTags       = 50
	MaxIdentities = 128
	MaxOperators  = 64

	MaxAuthorizedCIDRs = 500
	// MaxImageDigestMirrors leaves room for what the service adds to the 255 sources of a HostedCluster.
	MaxImageDigestMirrors = 240
	// MaxMirrors is the most mirrors of one source.
	MaxMirrors = 255

	MaxLabels = 256
	// MaxTaints is the most taints that HyperShift accepts.
	MaxTaints = 50

	MaxAudiences       = 10
	MaxClients         = 20
	MaxExtraScopes     = 20
	MaxValidationRules = 20
)

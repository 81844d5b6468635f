package emulator

// The headers of the protocol, in the canonical form of net/http. Lookups then need no conversion, which matters because
// each request looks up dozens of headers.
const (
	headerDate           = "X-Ms-Date"
	headerPartitionKey   = "X-Ms-Documentdb-Partitionkey"
	headerRangeID        = "X-Ms-Documentdb-Partitionkeyrangeid"
	headerConsistency    = "X-Ms-Consistency-Level"
	headerSession        = "X-Ms-Session-Token"
	headerUpsert         = "X-Ms-Documentdb-Is-Upsert"
	headerBatch          = "X-Ms-Cosmos-Is-Batch-Request"
	headerBatchAtomic    = "X-Ms-Cosmos-Batch-Atomic"
	headerQuery          = "X-Ms-Documentdb-Query"
	headerIsQuery        = "X-Ms-Documentdb-Isquery"
	headerCrossPartition = "X-Ms-Documentdb-Query-Enablecrosspartition"
	headerQueryMetrics   = "X-Ms-Documentdb-Query-Metrics"
	headerMaxItems       = "X-Ms-Max-Item-Count"
	headerContinuation   = "X-Ms-Continuation"
	headerLSN            = "Lsn"
	headerETag           = "Etag"
	headerAIM            = "A-Im"
	headerActivityID     = "X-Ms-Activity-Id"
	headerCharge         = "X-Ms-Request-Charge"
	headerGatewayVersion = "X-Ms-Gatewayversion"
	headerServiceVersion = "X-Ms-Serviceversion"
	headerSchemaVersion  = "X-Ms-Schemaversion"
	headerSubStatus      = "X-Ms-Substatus"
	headerRetryAfter     = "X-Ms-Retry-After-Ms"
)

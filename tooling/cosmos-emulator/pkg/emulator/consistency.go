package emulator

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// reader returns the replica that serves a read of items. The primary has all acknowledged writes. A fault selects the lagging replica,
// if the consistency level of the request allows reads from a single replica, and that replica has the session of the request.
func (s *Server) reader(req *request, c *store.Container) (*store.Reader, error) {
	level, err := s.requestedConsistency(req)
	if err != nil {
		return nil, err
	}
	session, err := sessionOf(req)
	if err != nil {
		return nil, err
	}
	if session > 0 {
		lsn, err := s.store.LSN(c)
		if err != nil {
			return nil, err
		}
		if session > lsn {
			// Only a token of another container or of deleted data is ahead of the primary.
			return nil, &statusError{status: http.StatusNotFound, subStatus: 1002,
				message: "The read session is not available for the input session token."}
		}
	}
	// Reads of these levels ask two replicas of four. Three have acknowledged each write, so one of the two has it.
	if !req.stale || level == account.Strong || level == account.BoundedStaleness {
		return &s.store.Reader, nil
	}
	lagging := s.store.Lagging()
	if level == account.Session {
		// The gateway repeats a read at another replica until one has the session.
		lsn, err := lagging.LSN(c)
		if err != nil {
			return nil, err
		}
		if session > lsn {
			return &s.store.Reader, nil
		}
	}
	return lagging, nil
}

// requestedConsistency returns the level of a request: that of the account, unless a header requests a weaker one.
func (s *Server) requestedConsistency(req *request) (account.ConsistencyLevel, error) {
	h := req.r.Header.Get(headerConsistency)
	if h == "" {
		return s.consistency, nil
	}
	levels := account.ConsistencyLevels()
	at := slices.IndexFunc(levels, func(level account.ConsistencyLevel) bool { return strings.EqualFold(string(level), h) })
	switch {
	case at < 0:
		return "", badRequest("The consistency level %q in the header x-ms-consistency-level is unknown.", h)
	case at < slices.Index(levels, s.consistency):
		return "", badRequest("ConsistencyLevel %s specified in the request is invalid when service is configured with consistency level %s. "+
			"Ensure the request consistency level is not stronger than the service consistency level.", levels[at], s.consistency)
	}
	return levels[at], nil
}

// sessionOf returns the newest LSN in the session token of a request, or 0 without a token.
func sessionOf(req *request) (uint64, error) {
	h := req.r.Header.Get(headerSession)
	if h == "" {
		return 0, nil
	}
	var newest uint64
	for _, token := range strings.Split(h, ",") {
		_, rest, ok := strings.Cut(token, ":")
		if !ok {
			return 0, badRequest("The session token %q is malformed.", h)
		}
		parts := strings.Split(rest, "#")
		// {lsn}, {version}#{lsn} or {version}#{lsn}#{region}={lsn}…
		at := min(1, len(parts)-1)
		n, err := strconv.ParseInt(parts[at], 10, 64)
		if err != nil {
			return 0, badRequest("The session token %q is malformed.", h)
		}
		newest = max(newest, uint64(max(n, 0)))
	}
	return newest, nil
}

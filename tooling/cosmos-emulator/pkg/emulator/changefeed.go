package emulator

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/store"
)

// changeFeed serves the incremental feed: the latest version of every item in the scope, in the order of the last
// changes. The continuation is the LSN of the last read change, in the quotes of an ETag.
func (s *Server) changeFeed(req *request, c *store.Container) error {
	if mode := req.r.Header.Get(headerAIM); !strings.EqualFold(strings.ReplaceAll(mode, " ", ""), "IncrementalFeed") {
		return badRequest("The change feed mode %q is not supported: only Incremental Feed is.", mode)
	}
	scope, err := s.scope(req, c)
	if err != nil {
		return err
	}
	n, err := req.maxItems(defaultPage)
	if err != nil {
		return err
	}
	var after uint64
	var since int64
	if from := req.r.Header.Get("If-None-Match"); from != "" {
		if after, err = strconv.ParseUint(strings.Trim(from, `"`), 10, 64); err != nil {
			return badRequest("The change feed continuation %q is not supported: it must be the ETag of a page.", from)
		}
	} else if h := req.r.Header.Get("If-Modified-Since"); h != "" {
		t, err := time.Parse(time.RFC1123, h)
		if err != nil {
			return badRequest("The header If-Modified-Since is not a date: %q.", h)
		}
		since = t.Unix()
	}
	page, err := s.store.ChangesAfter(c, scope, after, since, n, maxPageBytes)
	if err != nil {
		return err
	}
	req.header(headerETag, `"`+strconv.FormatUint(page.LSN, 10)+`"`)
	id := c.Ranges[0].ID
	if h := req.r.Header.Get(headerRangeID); h != "" {
		id = h
	}
	req.header(headerSession, sessionToken(id, page.LSN))
	if len(page.Items) == 0 {
		return req.respond(http.StatusNotModified, 1, nil)
	}
	rows := make([][]byte, len(page.Items))
	for i, item := range page.Items {
		rows[i] = item.Body
	}
	return req.respond(http.StatusOK, queryCharge(len(rows)), feedBody(c.ID(), "Documents", rows))
}

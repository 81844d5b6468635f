// Package blobsink is the audit's storage in Azure Blob Storage: a sink of append blobs in a container with an immutability policy, and a
// witness that is such a sink in another account.
//
// A writer's log is a sequence of append blobs, WRITER/OFFSET.jsonl, because an append blob has at most 50,000 blocks. Each blob begins
// where the one before it ends. Every append names the length that the blob must have, so that no content is stored twice or in between,
// also when a response is lost. The policy, and not this package, prevents that somebody deletes or overwrites a blob; the package refuses
// to export into a container without one.
package blobsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

const (
	suffix = ".jsonl"
	// maxBlocks is the number of blocks after which the next blob begins, below Azure's limit of 50,000.
	maxBlocks = 45000
	// maxBlock is the maximum size of a block in all versions of the API.
	maxBlock = 4 << 20
)

// Sink is a sink.Log and a sink.Reader. It is safe for concurrent use. Only one process may append to the log of a writer, which the
// queue of the writer ensures; a second one gets sink.ErrConflict.
type Sink struct {
	container *container.Client
	maxBlocks int

	mu sync.Mutex
	// immutable is true once the container was seen with an immutability policy, which cannot be removed while blobs are retained.
	immutable bool
	// tails are the last blobs of the writers that this process appends to.
	tails map[string]part
}

// part is a blob of a log.
type part struct {
	name string
	// begin is the offset of its first byte in the log.
	begin, length int64
	// blocks is the number of its blocks, -1 if unknown.
	blocks int
	// modified is the time of the last append, for a blob that was listed.
	modified time.Time
}

func (p part) end() int64 { return p.begin + p.length }

// Valid returns an error unless location is the https URL of a container: https://ACCOUNT/CONTAINER.
func Valid(location string) error {
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%q is not the https URL of a container", location)
	}
	return nil
}

// Config configures a Sink or a Witness.
type Config struct {
	// URL is the https URL of the container.
	URL        string
	Credential azcore.TokenCredential
	Options    policy.ClientOptions
	// MaxBlocks is the number of blocks of one blob of a Sink; 0 means 45,000, and Azure permits 50,000.
	MaxBlocks int
}

// New returns the sink in a container.
func New(c Config) (*Sink, error) {
	client, err := c.connect()
	if err != nil {
		return nil, err
	}
	if c.MaxBlocks == 0 {
		c.MaxBlocks = maxBlocks
	}
	return &Sink{container: client, maxBlocks: c.MaxBlocks, tails: map[string]part{}}, nil
}

// connect returns a client that sends each request once: a repeated append after a lost response would be refused, and the exporter
// retries itself after it has compared what is stored.
func (c Config) connect() (*container.Client, error) {
	if err := Valid(c.URL); err != nil {
		return nil, err
	}
	c.Options.Retry.MaxRetries = -1
	return container.NewClient(c.URL, c.Credential, &container.ClientOptions{ClientOptions: c.Options})
}

// partName returns the name of the blob that begins at an offset of a writer's log.
func partName(writer string, begin int64) string {
	return fmt.Sprintf("%s/%020d%s", writer, begin, suffix)
}

// parts returns the blobs of a log in their order.
func (s *Sink) parts(ctx context.Context, writer string) ([]part, error) {
	var parts []part
	prefix := writer + "/"
	for pager := s.container.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix}); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing the audit sink: %w", err)
		}
		for _, item := range page.Segment.BlobItems {
			begin, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(*item.Name, prefix), suffix), 10, 64)
			if err != nil || partName(writer, begin) != *item.Name || item.Properties.ContentLength == nil || item.Properties.LastModified == nil {
				return nil, fmt.Errorf("the audit sink has a blob %s, which is not a part of a log", *item.Name)
			}
			parts = append(parts, part{name: *item.Name, begin: begin, length: *item.Properties.ContentLength, blocks: -1, modified: *item.Properties.LastModified})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return int(min(max(a.begin-b.begin, -1), 1)) })
	var end int64
	for _, p := range parts {
		if p.begin != end {
			return nil, fmt.Errorf("%w: the blob %s of the audit sink should begin at byte %d", sink.ErrConflict, p.name, end)
		}
		end = p.end()
	}
	return parts, nil
}

// Size implements sink.Log and sink.Reader.
func (s *Sink) Size(ctx context.Context, writer string) (int64, error) {
	if !audit.ValidWriter(writer) {
		return 0, fmt.Errorf("%q is not the name of an audit writer", writer)
	}
	parts, err := s.parts(ctx, writer)
	if err != nil || len(parts) == 0 {
		return 0, err
	}
	return parts[len(parts)-1].end(), nil
}

// Append implements sink.Log.
func (s *Sink) Append(ctx context.Context, writer string, offset int64, content []byte) error {
	if !audit.ValidWriter(writer) {
		return fmt.Errorf("%q is not the name of an audit writer", writer)
	}
	if err := s.requireImmutable(ctx); err != nil {
		return err
	}
	tail, err := s.tail(ctx, writer, offset)
	if err != nil {
		return err
	}
	for len(content) > 0 {
		if tail.blocks >= s.maxBlocks || tail.name == "" {
			if tail, err = s.begin(ctx, writer, tail.end()); err != nil {
				return err
			}
		}
		n := min(len(content), maxBlock)
		if tail, err = s.appendBlock(ctx, tail, content[:n]); err != nil {
			return err
		}
		content = content[n:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tails[writer] = tail
	return nil
}

// requireImmutable returns an error unless the container has an immutability policy.
func (s *Sink) requireImmutable(ctx context.Context) error {
	s.mu.Lock()
	known := s.immutable
	s.mu.Unlock()
	if known {
		return nil
	}
	properties, err := s.container.GetProperties(ctx, nil)
	if err != nil {
		return fmt.Errorf("reading the container of the audit sink: %w", err)
	}
	if properties.HasImmutabilityPolicy == nil || !*properties.HasImmutabilityPolicy {
		return fmt.Errorf("the container %s has no immutability policy, so that its records could be changed", s.container.URL())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.immutable = true
	return nil
}

// tail returns the last blob of a log, which must end at an offset. It forgets the blob, so that a failed append reads it again.
func (s *Sink) tail(ctx context.Context, writer string, offset int64) (part, error) {
	s.mu.Lock()
	known, ok := s.tails[writer]
	delete(s.tails, writer)
	s.mu.Unlock()
	if ok && known.end() == offset {
		return known, nil
	}
	parts, err := s.parts(ctx, writer)
	if err != nil {
		return part{}, err
	}
	var last part
	if len(parts) > 0 {
		last = parts[len(parts)-1]
	}
	if last.end() != offset {
		return part{}, fmt.Errorf("%w: %s has %d bytes, the writer has exported %d", sink.ErrConflict, writer, last.end(), offset)
	}
	if last.name == "" {
		return last, nil
	}
	properties, err := s.container.NewAppendBlobClient(last.name).GetProperties(ctx, nil)
	if err != nil {
		return part{}, fmt.Errorf("reading the audit sink: %w", err)
	}
	if properties.BlobCommittedBlockCount == nil {
		return part{}, fmt.Errorf("the blob %s of the audit sink is not an append blob", last.name)
	}
	last.blocks = int(*properties.BlobCommittedBlockCount)
	return last, nil
}

// begin creates the blob at an offset of a log.
func (s *Sink) begin(ctx context.Context, writer string, offset int64) (part, error) {
	p := part{name: partName(writer, offset), begin: offset}
	any := azcore.ETagAny
	_, err := s.container.NewAppendBlobClient(p.name).Create(ctx, &appendblob.CreateOptions{
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &any}}})
	if err != nil && !bloberror.HasCode(err, bloberror.BlobAlreadyExists) {
		return part{}, fmt.Errorf("creating a blob of the audit sink: %w", err)
	}
	// One that exists is empty, or the append at its beginning is refused.
	return p, nil
}

func (s *Sink) appendBlock(ctx context.Context, p part, content []byte) (part, error) {
	at := p.length
	_, err := s.container.NewAppendBlobClient(p.name).AppendBlock(ctx, streaming.NopCloser(bytes.NewReader(content)),
		&appendblob.AppendBlockOptions{AppendPositionAccessConditions: &appendblob.AppendPositionAccessConditions{AppendPosition: &at}})
	if bloberror.HasCode(err, bloberror.AppendPositionConditionNotMet) {
		return p, fmt.Errorf("%w: %s does not end at byte %d", sink.ErrConflict, p.name, at)
	}
	if err != nil {
		return p, fmt.Errorf("writing to the audit sink: %w", err)
	}
	p.length += int64(len(content))
	p.blocks++
	return p, nil
}

// Writers implements sink.Reader.
func (s *Sink) Writers(ctx context.Context) ([]string, error) {
	var writers []string
	for pager := s.container.NewListBlobsFlatPager(nil); pager.More(); {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing the audit sink: %w", err)
		}
		for _, item := range page.Segment.BlobItems {
			writer, _, _ := strings.Cut(*item.Name, "/")
			writers = append(writers, writer)
		}
	}
	slices.Sort(writers)
	return slices.Compact(writers), nil
}

// Modified implements sink.Reader.
func (s *Sink) Modified(ctx context.Context, writer string) (time.Time, error) {
	parts, err := s.parts(ctx, writer)
	if err != nil {
		return time.Time{}, err
	}
	if len(parts) == 0 {
		return time.Time{}, fmt.Errorf("the audit sink has no log of %s", writer)
	}
	return parts[len(parts)-1].modified, nil
}

// Open implements sink.Log and sink.Reader.
func (s *Sink) Open(ctx context.Context, writer string, offset int64) (io.ReadCloser, error) {
	parts, err := s.parts(ctx, writer)
	if err != nil {
		return nil, err
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return p.end() <= offset || p.length == 0 })
	return &reader{ctx: ctx, container: s.container, parts: parts, offset: offset}, nil
}

// reader reads the parts of a log one after the other, up to the length that they had when it was opened.
type reader struct {
	ctx       context.Context
	container *container.Client
	parts     []part
	offset    int64
	current   io.ReadCloser
}

// Read implements io.Reader.
func (r *reader) Read(buffer []byte) (int, error) {
	for {
		if r.current == nil {
			if len(r.parts) == 0 {
				return 0, io.EOF
			}
			p := r.parts[0]
			from := max(r.offset-p.begin, 0)
			response, err := r.container.NewBlobClient(p.name).DownloadStream(r.ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: from, Count: p.length - from}})
			if err != nil {
				return 0, fmt.Errorf("reading the audit sink: %w", err)
			}
			r.current = response.Body
		}
		n, err := r.current.Read(buffer)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		err = r.current.Close()
		r.current, r.parts = nil, r.parts[1:]
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.current == nil {
		return nil
	}
	return r.current.Close()
}

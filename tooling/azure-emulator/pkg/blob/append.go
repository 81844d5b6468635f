package blob

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	// blocks is the bucket of the blocks of append blobs, by account/container/blob, a zero byte and the offset of the block.
	blocks = "append-blocks"
	// appendBlob and blockBlob are the types of blobs.
	appendBlob, blockBlob = "AppendBlob", "BlockBlob"
	// maxBlock is the maximum size of a block, and maxBlocks the maximum number of blocks of a blob, as in Azure since version 2015-02-21.
	maxBlock  = 4 << 20
	maxBlocks = 50000
)

// kind returns the type of a blob. Documents that are stored without one are block blobs.
func (d *document) kind() string {
	if d.Kind == "" {
		return blockBlob
	}
	return d.Kind
}

// length returns the number of bytes of a blob.
func (d *document) length() int64 {
	if d.kind() == appendBlob {
		return d.Length
	}
	return int64(len(d.Content))
}

func (p path) blockPrefix() string { return p.key() + "\x00" }

// block is a stored block of an append blob.
type block struct {
	Content []byte `json:"content"`
}

// appendBlock executes Append Block.
func (s *Server) appendBlock(w http.ResponseWriter, r *http.Request, p path) error {
	d, err := s.findBlob(p)
	switch {
	case err != nil:
		return err
	case d == nil:
		return newError(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	case d.kind() != appendBlob:
		return newError(http.StatusConflict, "InvalidBlobType", "The blob type is invalid for this operation.")
	}
	if err := checkConditions(r, d); err != nil {
		return err
	}
	if err := s.checkAppend(p); err != nil {
		return err
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBlock))
	switch {
	case err != nil:
		return newError(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
	case len(content) == 0:
		return newError(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
	case d.Blocks >= maxBlocks:
		return newError(http.StatusConflict, "BlockCountExceedsLimit", "The committed block count cannot exceed the maximum limit of 50,000 blocks.")
	}
	if err := checkPosition(r, d.Length, int64(len(content))); err != nil {
		return err
	}
	offset := d.Length
	d.Length, d.Blocks = d.Length+int64(len(content)), d.Blocks+1
	d.ETag, d.Modified = s.etag(), s.Now()
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := tx.Put(blocks, p.blockPrefix()+fmt.Sprintf("%020d", offset), block{content}); err != nil {
			return err
		}
		return tx.Put(blobs, p.key(), d)
	})
	if err != nil {
		return err
	}
	d.headers(w)
	w.Header().Set("x-ms-blob-append-offset", strconv.FormatInt(offset, 10))
	w.Header().Set("x-ms-blob-committed-block-count", strconv.Itoa(d.Blocks))
	w.Header().Set("x-ms-request-server-encrypted", "true")
	w.WriteHeader(http.StatusCreated)
	return nil
}

// checkPosition checks the conditions of Append Block on the length of the blob.
func checkPosition(r *http.Request, length, added int64) error {
	for header, refusal := range map[string]struct {
		code   string
		broken func(int64) bool
	}{
		"x-ms-blob-condition-appendpos": {"AppendPositionConditionNotMet", func(want int64) bool { return length != want }},
		"x-ms-blob-condition-maxsize":   {"MaxBlobSizeConditionNotMet", func(limit int64) bool { return length+added > limit }},
	} {
		text := r.Header.Get(header)
		if text == "" {
			continue
		}
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil || value < 0 {
			return newError(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
		}
		if refusal.broken(value) {
			return newError(http.StatusPreconditionFailed, refusal.code, "The condition of the header %s is not met.", header)
		}
	}
	return nil
}

// content returns bytes of a blob.
func (s *Server) content(p path, d *document, from, to int64) ([]byte, error) {
	if d.kind() != appendBlob {
		return d.Content[from:to], nil
	}
	var out bytes.Buffer
	err := s.Store.View(func(tx *store.Tx) error {
		return tx.Scan(blocks, p.blockPrefix(), func(key string, decode func(any) error) error {
			offset, err := strconv.ParseInt(strings.TrimPrefix(key, p.blockPrefix()), 10, 64)
			if err != nil {
				return err
			}
			if offset >= to {
				return store.ErrStop
			}
			var b block
			if err := decode(&b); err != nil {
				return err
			}
			end := offset + int64(len(b.Content))
			if end > from {
				out.Write(b.Content[max(from-offset, 0) : min(to, end)-offset])
			}
			return nil
		})
	})
	return out.Bytes(), err
}

// deleteBlocks deletes the blocks of all blobs whose keys begin with a prefix.
func deleteBlocks(tx *store.Tx, prefix string) error {
	return deleteKeys(tx, blocks, prefix)
}

// requestedRange returns the bytes that a request asks for: all without a header. partial reports whether it has one.
func requestedRange(r *http.Request, length int64) (from, to int64, partial bool, err error) {
	text := r.Header.Get("x-ms-range")
	if text == "" {
		text = r.Header.Get("Range")
	}
	if text == "" {
		return 0, length, false, nil
	}
	invalid := newError(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The range specified is invalid for the current size of the resource.")
	spec, isBytes := strings.CutPrefix(text, "bytes=")
	first, last, isRange := strings.Cut(spec, "-")
	from, err = strconv.ParseInt(first, 10, 64)
	if !isBytes || !isRange || err != nil || from < 0 || from >= length {
		return 0, 0, false, invalid
	}
	to = length
	if last != "" {
		end, err := strconv.ParseInt(last, 10, 64)
		if err != nil || end < from {
			return 0, 0, false, invalid
		}
		to = min(to, end+1)
	}
	return from, to, true, nil
}

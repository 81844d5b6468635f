package registry

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
)

func (s *Server) getManifest(w http.ResponseWriter, r *http.Request, repository, reference string) error {
	m, err := s.store.Manifest(repository, reference)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", m.MediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(m.Text)))
	w.Header().Set(digestHeader, m.Digest)
	w.Header().Set("ETag", `"`+m.Digest+`"`)
	if r.Method == http.MethodHead {
		return nil
	}
	_, err = w.Write(m.Text)
	return err
}

func (s *Server) putManifest(w http.ResponseWriter, r *http.Request, repository, reference string) error {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return &failure{http.StatusBadRequest, "MANIFEST_INVALID", "Content-Type: " + err.Error()}
	}
	text, err := io.ReadAll(io.LimitReader(body(w, r), MaxManifest+1))
	if err != nil {
		return err
	}
	if len(text) > MaxManifest {
		return &failure{http.StatusRequestEntityTooLarge, "SIZE_INVALID", fmt.Sprintf("the manifest is larger than %d bytes", MaxManifest)}
	}
	m, err := s.store.PutManifest(repository, reference, mediaType, text)
	if err != nil {
		return err
	}
	if m.Subject != "" {
		w.Header().Set("OCI-Subject", m.Subject)
	}
	w.Header().Set("Location", "/v2/"+repository+"/manifests/"+m.Digest)
	w.Header().Set(digestHeader, m.Digest)
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (s *Server) listTags(w http.ResponseWriter, r *http.Request, repository, target string) error {
	if target != "list" {
		return &failure{http.StatusNotFound, "UNSUPPORTED", "the tags are at tags/list"}
	}
	query, limit := r.URL.Query(), -1
	if text := query.Get("n"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 {
			return &failure{http.StatusBadRequest, "UNSUPPORTED", "n: is not a number"}
		}
	}
	tags, more, err := s.store.Tags(repository, query.Get("last"), limit)
	if err != nil {
		return err
	}
	if more && limit > 0 {
		next := url.Values{"n": {strconv.Itoa(limit)}, "last": {tags[len(tags)-1]}}
		w.Header().Set("Link", fmt.Sprintf(`</v2/%s/tags/list?%s>; rel="next"`, repository, next.Encode()))
	}
	return respond(w, "application/json", map[string]any{"name": repository, "tags": tags})
}

func (s *Server) listReferrers(w http.ResponseWriter, r *http.Request, repository, digest string) error {
	artifactType := r.URL.Query().Get("artifactType")
	referrers, err := s.store.Referrers(repository, digest, artifactType)
	if err != nil {
		return err
	}
	if artifactType != "" {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	const index = "application/vnd.oci.image.index.v1+json"
	return respond(w, index, map[string]any{"schemaVersion": 2, "mediaType": index, "manifests": referrers})
}

func respond(w http.ResponseWriter, mediaType string, value any) error {
	w.Header().Set("Content-Type", mediaType)
	return json.NewEncoder(w).Encode(value)
}

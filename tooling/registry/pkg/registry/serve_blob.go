package registry

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

func (s *Server) getBlob(w http.ResponseWriter, r *http.Request, _, digest string) error {
	file, err := s.store.Blob(digest)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	enough := stalled + time.Duration(info.Size()/minimumRate)*time.Second
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(enough)); err != nil {
		return err
	}
	w.Header().Set(digestHeader, digest)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+digest+`"`)
	http.ServeContent(w, r, "", time.Time{}, file) // with ranges
	return nil
}

// beginUpload begins an upload. With the digest, the body is the whole blob; with mount, the blob may be there already.
func (s *Server) beginUpload(w http.ResponseWriter, r *http.Request, repository, target string) error {
	if target != "" {
		return &failure{http.StatusMethodNotAllowed, "UNSUPPORTED", "an upload begins with POST of blobs/uploads/"}
	}
	query := r.URL.Query()
	if digest := query.Get("mount"); digest != "" {
		if file, err := s.store.Blob(digest); err == nil {
			_ = file.Close()
			created(w, repository, digest)
			return nil
		}
	}
	u, err := s.store.Begin(repository, time.Now())
	if err != nil {
		return err
	}
	if query.Get("digest") != "" {
		return s.commit(w, r, repository, u, -1)
	}
	progress(w, repository, u, http.StatusAccepted)
	return nil
}

func (s *Server) appendUpload(w http.ResponseWriter, r *http.Request, repository, id string) error {
	u, err := s.store.Upload(repository, id)
	if err != nil {
		return uploadUnknown(err)
	}
	start, err := position(r)
	if err != nil {
		return err
	}
	if _, err := u.Append(body(w, r), start, time.Now()); err != nil {
		return err
	}
	progress(w, repository, u, http.StatusAccepted)
	return nil
}

func (s *Server) getUpload(w http.ResponseWriter, _ *http.Request, repository, id string) error {
	u, err := s.store.Upload(repository, id)
	if err != nil {
		return uploadUnknown(err)
	}
	progress(w, repository, u, http.StatusNoContent)
	return nil
}

func (s *Server) cancelUpload(w http.ResponseWriter, _ *http.Request, repository, id string) error {
	u, err := s.store.Upload(repository, id)
	if err != nil {
		return uploadUnknown(err)
	}
	s.store.Cancel(u)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) commitUpload(w http.ResponseWriter, r *http.Request, repository, id string) error {
	u, err := s.store.Upload(repository, id)
	if err != nil {
		return uploadUnknown(err)
	}
	start, err := position(r)
	if err != nil {
		return err
	}
	return s.commit(w, r, repository, u, start)
}

// commit appends the body to an upload and stores the blob.
func (s *Server) commit(w http.ResponseWriter, r *http.Request, repository string, u *Upload, start int64) error {
	if _, err := u.Append(body(w, r), start, time.Now()); err != nil {
		s.store.Cancel(u)
		return err
	}
	digest := r.URL.Query().Get("digest")
	if err := s.store.Commit(u, digest); err != nil {
		return err
	}
	created(w, repository, digest)
	return nil
}

func created(w http.ResponseWriter, repository, digest string) {
	w.Header().Set("Location", "/v2/"+repository+"/blobs/"+digest)
	w.Header().Set(digestHeader, digest)
	w.WriteHeader(http.StatusCreated)
}

// progress writes where an upload continues.
func progress(w http.ResponseWriter, repository string, u *Upload, status int) {
	w.Header().Set("Location", "/v2/"+repository+"/blobs/uploads/"+u.ID)
	w.Header().Set("Docker-Upload-UUID", u.ID)
	w.Header().Set("Range", fmt.Sprintf("0-%d", max(u.Size()-1, 0)))
	w.WriteHeader(status)
}

func uploadUnknown(err error) error {
	return &failure{http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN", err.Error()}
}

// rangeForm is the form of Content-Range in the OCI specification.
var rangeForm = regexp.MustCompile(`^([0-9]{1,18})-([0-9]{1,18})$`)

// position returns the position of the first byte of the body, or -1 if the request does not state it.
func position(r *http.Request) (int64, error) {
	header := r.Header.Get("Content-Range")
	if header == "" {
		return -1, nil
	}
	match := rangeForm.FindStringSubmatch(header)
	if match == nil {
		return 0, &failure{http.StatusBadRequest, "BLOB_UPLOAD_INVALID", "Content-Range: is not START-END"}
	}
	start, _ := strconv.ParseInt(match[1], 10, 64) // the form has only numbers that fit
	end, _ := strconv.ParseInt(match[2], 10, 64)
	if r.ContentLength >= 0 && end-start+1 != r.ContentLength {
		return 0, &failure{http.StatusBadRequest, "BLOB_UPLOAD_INVALID", "Content-Range: has another length than the body"}
	}
	return start, nil
}

// body returns the body of a request. Reading it fails if nothing arrives for a minute.
func body(w http.ResponseWriter, r *http.Request) io.Reader {
	return &patient{r.Body, http.NewResponseController(w)}
}

type patient struct {
	io.Reader
	controller *http.ResponseController
}

func (p *patient) Read(b []byte) (int, error) {
	if err := p.controller.SetReadDeadline(time.Now().Add(stalled)); err != nil {
		return 0, err
	}
	return p.Reader.Read(b)
}

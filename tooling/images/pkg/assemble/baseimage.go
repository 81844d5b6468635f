package assemble

import (
	"archive/zip"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/content"
)

// User is the user and group of the programs, in the form of an image's configuration. The number lets Kubernetes see that it is not root.
const User = "65532:65532"

// The files that programs need.
const (
	CertificatesFile = "etc/ssl/certs/ca-certificates.crt"
	zonesFolder      = "usr/share/zoneinfo"
)

// BaseFiles returns the files of the layer. zones is the zip file with time zones of the Go toolchain, GOROOT/lib/time/zoneinfo.zip.
func BaseFiles(zones []byte) ([]content.File, error) {
	files := []content.File{
		{Path: "etc/passwd", Mode: 0o644, Text: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{Path: "etc/group", Mode: 0o644, Text: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{Path: CertificatesFile, Mode: 0o644, Text: certificates()},
	}
	archive, err := zip.NewReader(bytes.NewReader(zones), int64(len(zones)))
	if err != nil {
		return nil, fmt.Errorf("read the time zones: %w", err)
	}
	for _, entry := range archive.File {
		if strings.HasSuffix(entry.Name, "/") {
			continue
		}
		text, err := read(entry)
		if err != nil {
			return nil, fmt.Errorf("read the time zone %s: %w", entry.Name, err)
		}
		files = append(files, content.File{Path: zonesFolder + "/" + entry.Name, Mode: 0o644, Text: text})
	}
	return files, nil
}

// certificates returns the certificate authorities as PEM. An authority that is trusted only for certificates issued before a date is left
// out, because the format cannot express that.
func certificates() []byte {
	var roots [][]byte
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			roots = append(roots, root.Certificate)
		}
	}
	slices.SortFunc(roots, bytes.Compare)
	var text bytes.Buffer
	for _, root := range roots {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root}) // a buffer has no errors
	}
	return text.Bytes()
}

func read(entry *zip.File) ([]byte, error) {
	in, err := entry.Open()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

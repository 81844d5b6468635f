package portal

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// files holds the assets: published files of npm packages, unchanged, as assets/lock.json lists them, and the portal's own.
//
//go:embed assets
var files embed.FS

// styles lists the parts of the style sheet in their order. The portal uses PatternFly's tokens and the components that its pages contain.
var styles = []string{
	"vendor/patternfly/base/patternfly-variables.css", "vendor/patternfly/base/patternfly-common.css",
	"vendor/patternfly/components/Alert/alert.css", "vendor/patternfly/components/Badge/badge.css", "vendor/patternfly/components/Breadcrumb/breadcrumb.css",
	"vendor/patternfly/components/Button/button.css", "vendor/patternfly/components/Card/card.css", "vendor/patternfly/components/DescriptionList/description-list.css",
	"vendor/patternfly/components/EmptyState/empty-state.css", "vendor/patternfly/components/Form/form.css", "vendor/patternfly/components/FormControl/form-control.css",
	"vendor/patternfly/components/Label/label.css", "vendor/patternfly/components/Nav/nav.css", "vendor/patternfly/components/Table/table.css",
	"vendor/patternfly/components/Title/title.css", "portal.css",
}

// themeScript sets the theme before anything is painted.
const themeScript = "theme.js"

// scripts lists the other scripts in the order in which pages load them.
var scripts = []string{"vendor/htmx/htmx.min.js", "vendor/idiomorph/idiomorph-ext.min.js", "portal.js"}

// fonts are the fonts that portal.css names.
var fonts = []string{
	"vendor/patternfly/assets/fonts/RedHatText/RedHatTextVF.woff2", "vendor/patternfly/assets/fonts/RedHatDisplay/RedHatDisplayVF.woff2",
	"vendor/patternfly/assets/fonts/RedHatMono/RedHatMonoVF.woff2",
}

// asset is a file that browsers may keep forever, because its name contains a digest of its content.
type asset struct {
	contentType   string
	plain, zipped []byte
}

// assets are the files of the portal.
type assets struct {
	byName map[string]asset
	// urls are the paths of the assets by their names without digests.
	urls map[string]string
}

// loadAssets reads the embedded files.
func loadAssets() (*assets, error) {
	a := &assets{byName: map[string]asset{}, urls: map[string]string{}}
	for _, file := range fonts {
		content, err := read(file)
		if err != nil {
			return nil, err
		}
		a.add(path.Base(file), "font/woff2", content)
	}
	var sheet bytes.Buffer
	for _, file := range styles {
		content, err := read(file)
		if err != nil {
			return nil, err
		}
		if file == "portal.css" {
			for name, url := range a.urls {
				content = bytes.ReplaceAll(content, []byte("url(\""+name+"\")"), []byte("url(\""+url+"\")"))
			}
		}
		sheet.Write(content)
		sheet.WriteByte('\n')
	}
	a.add("portal.css", "text/css; charset=utf-8", sheet.Bytes())
	for _, file := range append([]string{themeScript}, scripts...) {
		content, err := read(file)
		if err != nil {
			return nil, err
		}
		a.add(path.Base(file), "text/javascript; charset=utf-8", content)
	}
	content, err := read("icon.svg")
	if err != nil {
		return nil, err
	}
	a.add("icon.svg", "image/svg+xml", content)
	return a, nil
}

func read(file string) ([]byte, error) {
	content, err := fs.ReadFile(files, "assets/"+file)
	if err != nil {
		return nil, fmt.Errorf("reading the asset %s: %w", file, err)
	}
	return content, nil
}

// add adds a file. Fonts are compressed already.
func (a *assets) add(name, contentType string, content []byte) {
	sum := sha256.Sum256(content)
	extension := path.Ext(name)
	hashed := strings.TrimSuffix(name, extension) + "-" + hex.EncodeToString(sum[:8]) + extension
	file := asset{contentType: contentType, plain: content}
	if extension != ".woff2" {
		var zipped bytes.Buffer
		writer, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // the level is valid
		_, _ = writer.Write(content)                                    // to memory
		_ = writer.Close()
		file.zipped = zipped.Bytes()
	}
	a.byName[hashed], a.urls[name] = file, "/assets/"+hashed
}

// serve serves an asset.
func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	file, known := a.byName[r.PathValue("name")]
	if !known {
		http.Error(w, "The portal has no such file.", http.StatusNotFound)
		return
	}
	header := w.Header()
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("Content-Type", file.contentType)
	header.Set("Vary", "Accept-Encoding")
	content := file.plain
	if file.zipped != nil && acceptsGzip(r) {
		header.Set("Content-Encoding", "gzip")
		content = file.zipped
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip reports whether the browser accepts gzip.
func acceptsGzip(r *http.Request) bool {
	for _, coding := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
		if name == "gzip" && strings.TrimSpace(weight) != "q=0" {
			return true
		}
	}
	return false
}

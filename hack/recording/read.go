// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sidecar-termination/operator/internal/podmodel"
)

// Replay replays the recordings of a directory, and those below it.
func Replay(directory string) (*podmodel.Replay, error) {
	replay := podmodel.NewReplay()
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(entry.Name(), Suffix) {
			return err
		}
		replay.Begin()
		if err := read(path, replay.Add); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		return nil
	})
	return replay, err
}

// read calls the function with each event. The end of a recording may be missing, because its process was killed.
func read(path string, add func(podmodel.Event)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	unzip, err := gzip.NewReader(file)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	for decoder := json.NewDecoder(unzip); ; {
		var event podmodel.Event
		switch err := decoder.Decode(&event); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		add(event)
	}
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// All that must be found again lies in files below the pool's directory, so that a plugin killed and started anew
// knows all it knew:
//
//	allocations/ID/mark.json    the highest token seen
//	allocations/ID/order.json   what was ordered, without its secrets
//	allocations/ID/state.json   what its runner says of it
//	allocations/ID/alive        locked for as long as its runner lives
//	allocations/ID/stop         written to have it ended
//	allocations/ID/steps, work, log
//	gone/ID                     the mark of what was released, or stopped before it was launched
//	version, usage.jsonl, locks/
type Pool struct {
	root string
}

type Mark struct {
	Token int64 `json:"token"`
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`)

func openPool(root string) (*Pool, error) {
	if !filepath.IsAbs(root) {
		return nil, refuse("invalid-input", "Give an absolute path.", "The target %q is no directory of this machine.", root)
	}
	for _, name := range []string{"allocations", "gone", "locks"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o700); err != nil {
			return nil, refuse("pool-unreachable", "Make it writable for the plugin's user.", "%s cannot be used: %v.", root, err)
		}
	}
	return &Pool{root}, nil
}

func (p *Pool) dir(id string) string  { return filepath.Join(p.root, "allocations", id) }
func (p *Pool) gone(id string) string { return filepath.Join(p.root, "gone", id) }

// locked runs act while nobody else touches the allocation, in this process or another.
func (p *Pool) locked(id string, act func() error) error {
	if !plainName.MatchString(id) {
		return refuse("invalid-input", "Use letters, digits, dots, dashes and underscores.", "%q cannot be an allocation's ID.", id)
	}
	hash := fnv.New32a()
	hash.Write([]byte(id))
	return p.holding(strconv.Itoa(int(hash.Sum32()%64)), act)
}

func (p *Pool) holding(lock string, act func() error) error {
	file, err := os.OpenFile(filepath.Join(p.root, "locks", lock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return act()
}

// find returns the mark of an allocation, and whether there is one and whether its directory is still there.
func (p *Pool) find(id string) (mark Mark, marked, here bool, err error) {
	if here, err = readJSON(filepath.Join(p.dir(id), "mark.json"), &mark); here || err != nil {
		return mark, here, here, err
	}
	marked, err = readJSON(p.gone(id), &mark)
	return mark, marked, false, err
}

// command checks the token against the highest seen, and remembers it.
func (p *Pool) command(id string, token int64) (marked, here bool, err error) {
	mark, marked, here, err := p.find(id)
	if err != nil || !marked {
		return marked, here, err
	}
	if token < mark.Token {
		return marked, here, refuse("fenced", "", "%s is commanded with token %d now; %d is older.", id, mark.Token, token)
	}
	if token > mark.Token {
		path := p.gone(id)
		if here {
			path = filepath.Join(p.dir(id), "mark.json")
		}
		err = writeJSON(path, Mark{token})
	}
	return marked, here, err
}

// changed tells observers that something happened.
func (p *Pool) changed() error {
	return p.holding("version", func() error {
		return writeWhole(filepath.Join(p.root, "version"), []byte(strconv.FormatInt(p.version()+1, 10)))
	})
}

func (p *Pool) version() int64 {
	text, _ := os.ReadFile(filepath.Join(p.root, "version"))
	number, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return number
}

func readJSON(path string, into any) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err == nil, err
}

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return writeWhole(path, text)
}

// writeWhole leaves the old content or the new, never half of it.
func writeWhole(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), fmt.Sprintf(".%s-*", filepath.Base(path)))
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}

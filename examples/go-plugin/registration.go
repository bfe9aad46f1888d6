package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

// Announcement is what the platform is told of this instance.
type Announcement struct {
	Manifest    *Manifest `json:"manifest"`
	Address     string    `json:"address"`
	Certificate string    `json:"certificate"`
	Token       string    `json:"token"`
}

// Registration keeps this instance known to the platform; one that is down is asked again for ever.
type Registration struct {
	url, key string
	body     []byte
}

func newRegistration(announcement Announcement) (*Registration, error) {
	instance := os.Getenv("YUNHE_PLUGIN_INSTANCE")
	if instance == "" {
		instance = fmt.Sprintf("%s-%d", nodeName(), os.Getpid())
	}
	body, err := json.Marshal(announcement)
	return &Registration{
		url:  fmt.Sprintf("%s/v1/plugins/%s/instances/%s", os.Getenv("YUNHE_URL"), announcement.Manifest.Name, instance),
		key:  os.Getenv("YUNHE_PLUGIN_KEY"),
		body: body,
	}, err
}

// untilSuperseded registers and sends heartbeats until another instance has taken over, or ctx ends.
func (r *Registration) untilSuperseded(ctx context.Context) {
	for ctx.Err() == nil {
		next := time.Second
		var answer struct {
			HeartbeatS float64 `json:"heartbeat_s"`
			State      string  `json:"state"`
		}
		if err := r.send(ctx, http.MethodPut, &answer); err != nil {
			log.Printf("the platform does not take the registration: %v", err)
		} else if answer.State == "superseded" {
			return
		} else {
			next = time.Duration(answer.HeartbeatS * float64(time.Second))
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// sayGoodbye lets the platform send no more calls; it is not waited for long.
func (r *Registration) sayGoodbye() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := r.send(ctx, http.MethodDelete, nil); err != nil {
		log.Printf("could not say goodbye to the platform: %v", err)
	}
}

func (r *Registration) send(ctx context.Context, method string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+r.key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("it answered %s: %.300s", answer.Status, text)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

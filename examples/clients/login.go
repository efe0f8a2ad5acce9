// Asks weir whether one more login may pass: go run . localhost:8081
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	channel, err := grpc.NewClient(os.Args[1], plaintext)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	entry := &common.RateLimitDescriptor_Entry{Key: "path", Value: "/login"}
	descriptor := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{entry}}
	request := &ratelimit.RateLimitRequest{Domain: "example", Descriptors: []*common.RateLimitDescriptor{descriptor}}
	response, err := ratelimit.NewRateLimitServiceClient(channel).ShouldRateLimit(ctx, request)
	if err != nil {
		log.Fatal(err)
	}
	status := response.Statuses[0]
	if response.OverallCode == ratelimit.RateLimitResponse_OK {
		fmt.Printf("welcome, %d more attempts\n", status.LimitRemaining)
	} else {
		fmt.Printf("try again in %d s\n", status.DurationUntilReset.Seconds)
	}
}

"""Asks weir whether one more login may pass: python login.py localhost:8081"""

import sys

import grpc
from envoy_data_plane.envoy.extensions.common.ratelimit import v3 as common
from envoy_data_plane.envoy.service.ratelimit import v3 as ratelimit

# The package's stub has no timeout.
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

channel = grpc.insecure_channel(sys.argv[1])
should_rate_limit = channel.unary_unary(METHOD, bytes, ratelimit.RateLimitResponse.FromString)

entry = common.RateLimitDescriptorEntry(key="path", value="/login")
descriptor = common.RateLimitDescriptor(entries=[entry])
request = ratelimit.RateLimitRequest(domain="example", descriptors=[descriptor])
response = should_rate_limit(request, timeout=1)
status = response.statuses[0]
if response.overall_code == ratelimit.RateLimitResponseCode.OK:
    print(f"welcome, {status.limit_remaining} more attempts")
else:
    print(f"try again in {status.duration_until_reset.total_seconds():.0f} s")

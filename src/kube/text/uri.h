// The two things that a client of the API needs of URIs.
#pragma once

#include <string>
#include <string_view>

namespace tessera::kube {

// Everything but letters, digits and -._~ as %XX: safe in a path segment and in a query.
std::string PercentEncode(std::string_view text);
std::string PercentDecode(
    std::string_view text);  // '+' is a space; broken escapes stay as they are

// Adds "name=value", with '?' or '&' before it.
void AppendQuery(std::string& path, std::string_view name, std::string_view value);

}  // namespace tessera::kube

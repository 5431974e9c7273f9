"""The JSON of the API, as types: what is asked, what is sent, what is answered.

The OpenAPI document is generated from these, requests are checked against them, and the client
reads answers with them. Times are Unix milliseconds; what is not known is null or left out.
"""

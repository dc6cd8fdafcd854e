"""Runs real shippers over real log trees and compares what arrives with what section 5 of the contract demands."""

"""The auditor: what a rule's Delta logs and its ledger prove. It shares no code with what it audits."""
